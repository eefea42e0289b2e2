//! One copy: compared with what it should be, and written if it differs.

use std::sync::Arc;

use windlass::{
    cache::Uid,
    kube::{Client, api::ObjectMeta},
    prelude::ObjectKey,
};

use crate::{
    adoption::{Permission, is_token},
    api::{ADOPT, AdoptionPolicy, DeletionPolicy, Recreate, SOURCE_UID, SourceKind},
    consent::Consent,
    content::Content,
    engine::Engine,
    figures::Verb,
    grip::Grip,
    held::Held,
    identity::{Mark, SyncId},
    ledger::Trouble,
    member::{Origin, Wanted, body_unmarked},
    plan::{Live, Order, Wish},
    room::{Source, is_excluded_type},
    wire::{self, Failure},
};

/// What became of one copy.
pub(crate) enum Outcome {
    Synced,
    /// It is of a type that is never copied.
    Excluded,
    /// It is not there to be copied, or something else comes first, and will be told.
    Waits,
    Wrong(Trouble, Again),
}

/// Whether trying again can help.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// With growing pauses.
    Retry,
    /// Every now and then.
    Look,
    /// Only a change can.
    Never,
}

/// What is done in one namespace, and for whom.
pub(crate) struct Visit<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) annotation: Arc<str>,
}

impl Visit<'_> {
    /// Takes away a copy that its sync does not want any more.
    pub(crate) async fn tidy(
        &self,
        order: &Order,
        kind: SourceKind,
        name: &str,
        held: &Held,
    ) -> Result<(), Failure> {
        let is_wanted = order.wanted.iter().any(|wish| {
            let source = &wish.member.source;
            source.kind == kind && &*source.name == name && Uid::from(&*source.uid) == held.source
        });
        let is_given = order.live.as_ref().is_none_or(|live| keeps_consent(live, held));
        if is_wanted && is_given || held.is_deleting || !held.grip.is_ours {
            return Ok(());
        }
        let stays = match &order.live {
            Some(live) if held.mark.as_deref() == Some(&*live.mark) => {
                live.is_deleting && live.rules.deletion == DeletionPolicy::Orphan
            }
            _ => held.stays,
        };
        // What the target had before is the target's again, whatever the sync's owner decides.
        if stays || held.is_adopted {
            self.release(kind, name, held).await
        } else {
            self.delete(kind, name, &held.uid.to_string(), held.version).await
        }
    }

    /// Takes our marks off, and leaves the rest.
    async fn release(&self, kind: SourceKind, name: &str, held: &Held) -> Result<(), Failure> {
        let there = wire::get(self.client, kind, self.namespace, name).await?;
        let is_same = |there: &Content| Uid::from(there.uid()) == held.uid && is_copy_of(there, held.source);
        let Some(there) = there.filter(is_same) else {
            return Ok(());
        };
        let released = self.replace(kind, name, body_unmarked(&there, kind)).await;
        released.map_err(|failure| failure.without(&there))
    }

    async fn delete(&self, kind: SourceKind, name: &str, uid: &str, version: u64) -> Result<(), Failure> {
        let deleted = wire::delete(self.client, kind, self.namespace, name, uid, version).await;
        deleted.map_err(Failure::without_grounds)?;
        self.engine.figures.wrote(Verb::Delete);
        Ok(())
    }

    async fn replace(&self, kind: SourceKind, name: &str, body: bytes::Bytes) -> Result<(), Failure> {
        wire::replace(self.client, kind, self.namespace, name, body).await?;
        self.engine.figures.wrote(Verb::Update);
        Ok(())
    }

    async fn create(&self, kind: SourceKind, body: bytes::Bytes) -> Result<(), Failure> {
        wire::create(self.client, kind, self.namespace, body).await?;
        self.engine.figures.wrote(Verb::Create);
        Ok(())
    }

    /// Makes one copy what it should be.
    pub(crate) async fn bring_about(&self, live: &Live, wish: &Wish) -> Outcome {
        let source = &wish.member.source;
        let name = &source.name;
        let named = matches!(&*live.mark, Mark::Annotation { .. }) || live.rules.names_one(name);
        let excluded = |what: &str| {
            if !named {
                return Outcome::Excluded;
            }
            let message = format!("{what} is never copied");
            wrong(name, "ExcludedType", message, Again::Never)
        };
        if source.is_excluded() {
            return excluded("a token, a tool's own record, or what the cluster publishes itself");
        }
        if source.has_come_through(self.namespace) {
            let message = format!("a copy would lead back to where it came from ({})", source.way());
            return wrong(name, "Loop", message, Again::Never);
        }
        let wanted = match wish.member.wanted(self.client, &self.annotation).await {
            Ok(Some(wanted)) => wanted,
            // The watch is about to tell.
            Ok(None) => return Outcome::Waits,
            Err(failure) => {
                return Outcome::Wrong(failed(name, &failure), Again::Retry);
            }
        };
        if is_excluded_type(wanted.content.secret_type()) {
            self.step_aside(live, source);
            return excluded(&format!("a Secret of type {}", wanted.content.secret_type()));
        }
        if let Some(rival) = &wish.rival
            && (rival.is_same_source || !self.holds(live, source))
        {
            let message = format!("an older sync wants it too: {}", known_as(&rival.sync, live));
            return conflict(name, "ClaimedByOther", message, Again::Never);
        }
        match self.settle(live, source.kind, name, &source.uid, &wanted).await {
            Ok(outcome) => outcome,
            // The namespace's own end is told by its watch.
            Err(failure) if failure.is_terminating() || failure.is_not_found() => Outcome::Waits,
            Err(failure) => {
                let failure = failure.without(&wanted.content);
                Outcome::Wrong(failed(name, &failure), Again::Retry)
            }
        }
    }

    /// Whether the copy that is there is this sync's, of this source: then no other sync takes its place.
    fn holds(&self, live: &Live, source: &Source) -> bool {
        let key = ObjectKey::namespaced(self.namespace, &*source.name);
        let held = self.engine.listers().held(source.kind).get(&key);
        held.is_some_and(|held| {
            held.grip.is_ours
                && !held.is_deleting
                && held.source == Uid::from(&*source.uid)
                && held.mark.as_deref() == Some(&*live.mark)
        })
    }

    /// It turned out that a source is never copied: whoever else wants a copy of its name need not wait for it.
    fn step_aside(&self, live: &Live, source: &Source) {
        if source.slot.exclude() {
            return;
        }
        let own = live.mark.sync(source.kind, &source.name);
        let roster = self.engine.roster.read();
        let others = roster.claimants(source.kind, &source.name).iter();
        let affected = others
            .filter(|other| **other != own)
            .flat_map(|other| roster.everywhere(other));
        self.engine.ask(affected.collect());
    }

    /// Compares what is there with what is wanted, and writes if they differ.
    async fn settle(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        source_uid: &str,
        wanted: &Wanted,
    ) -> Result<Outcome, Failure> {
        let key = ObjectKey::namespaced(self.namespace, &**name);
        let Some(held) = self.engine.listers().held(kind).get(&key) else {
            return self.make(live, kind, name, wanted).await;
        };
        if !held.grip.is_ours {
            // It has our label and was written by somebody else: a copy of a copy, made by hand.
            return match wire::look(self.client, kind, self.namespace, name).await? {
                Some(there) => self.meet(live, kind, name, wanted, &there).await,
                None => Ok(Outcome::Waits),
            };
        }
        if held.is_deleting {
            return Ok(Outcome::Waits);
        }
        if held.source != Uid::from(source_uid) {
            return Ok(self.occupied(live, kind, name, &held));
        }
        if !keeps_consent(live, &held) {
            let message = "the target has withdrawn its consent to the adoption; it is released";
            return Ok(conflict(
                name,
                "AdoptionNotAllowed",
                message.to_owned(),
                Again::Look,
            ));
        }
        let is_marked = held.mark.as_deref() == Some(&*live.mark);
        let grip = &held.grip;
        let origin = if held.is_adopted {
            Origin::Adopted
        } else {
            Origin::Created
        };
        let is_untouched = grip.fields == wanted.fields(origin) && !grip.is_meddled;
        if is_marked && is_untouched && held.digest == Some(wanted.digest) {
            return Ok(Outcome::Synced);
        }
        if let Some(applier) = &grip.applier {
            let message = format!("`{applier}` applies other data to it; it is left to that");
            return Ok(conflict(name, "AppliedByOther", message, Again::Never));
        }
        let state = (held.uid, held.version);
        if is_marked
            && held.digest == Some(wanted.digest)
            && self.engine.verified.lock().get(&(kind, key.clone())) == Some(&state)
        {
            return Ok(Outcome::Synced);
        }
        let Some(there) = wire::get(self.client, kind, self.namespace, name).await? else {
            return self.make(live, kind, name, wanted).await;
        };
        // Its owner may have reclaimed it since it was seen; its watch is about to tell.
        let is_given = Origin::of(&there.metadata) == Origin::Created
            || live
                .adoption
                .holds_for(Some(&Consent::of(&there.metadata, ADOPT)));
        if Uid::from(there.uid()) != held.uid || !is_copy_of(&there, held.source) || !is_given {
            return Ok(Outcome::Waits);
        }
        self.renew(live, kind, name, wanted, &there).await
    }

    /// What is there is a copy of something else.
    fn occupied(&self, live: &Live, kind: SourceKind, name: &Arc<str>, held: &Held) -> Outcome {
        let owner = self.engine.owner(kind, name, held);
        let roster = self.engine.roster.read();
        let message = match &owner {
            // One without a sync goes, and so does one that its sync does not want; both are told.
            Some(owner) if held.mark.as_deref() == Some(&*live.mark) || roster.sync(owner).is_none() => {
                return Outcome::Waits;
            }
            Some(owner) => format!("it is a copy that belongs to {}", known_as(owner, live)),
            None => "it is a copy of another source, and does not say whose".to_owned(),
        };
        conflict(name, "ClaimedByOther", message, Again::Look)
    }

    /// Nothing of ours is there.
    async fn make(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &Wanted,
    ) -> Result<Outcome, Failure> {
        // Whoever was in the way is looked at first: a write that cannot succeed is not tried again and again.
        if self.was_in_the_way(live, name)
            && let Some(there) = wire::look(self.client, kind, self.namespace, name).await?
        {
            return self.meet(live, kind, name, wanted, &there).await;
        }
        match self.create(kind, wanted.new_body(&live.mark)).await {
            Ok(()) => Ok(Outcome::Synced),
            Err(failure) if failure.is_already_there() => {
                match wire::look(self.client, kind, self.namespace, name).await? {
                    Some(there) => self.meet(live, kind, name, wanted, &there).await,
                    None => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether the last look found somebody else's object.
    fn was_in_the_way(&self, live: &Live, name: &Arc<str>) -> bool {
        let sync = live.mark.sync(live.rules.kind, name);
        let ledger = self.engine.ledger.lock();
        ledger.is_in_conflict(&sync, self.namespace, name)
    }

    /// Something is there that is none of our copies, as far as is known.
    async fn meet(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &Wanted,
        there: &ObjectMeta,
    ) -> Result<Outcome, Failure> {
        // What is known may be behind: it is a copy already, and the watch is about to tell.
        let is_labelled = there
            .labels
            .as_ref()
            .is_some_and(|all| all.contains_key(SOURCE_UID));
        if is_labelled && Grip::of(there).is_ours {
            return Ok(Outcome::Waits);
        }
        if live.rules.adoption == AdoptionPolicy::Never {
            let message = "an object of that name exists; it is left as it is".to_owned();
            return Ok(conflict(name, "Conflict", message, Again::Look));
        }
        // Without permission its content is not read, so that nothing can depend on it.
        let permission = |metadata: &ObjectMeta| {
            if is_token(metadata) {
                return Permission::Nothing;
            }
            live.adoption.permission(live.rules.adoption, metadata)
        };
        if permission(there) == Permission::Nothing {
            return Ok(not_allowed(live, name));
        }
        let found = wire::get(self.client, kind, self.namespace, name).await?;
        let Some(there) = found.filter(|found| Some(found.uid()) == there.uid.as_deref()) else {
            return Err(Failure::Other(
                "it was replaced while it was looked at".to_owned(),
            ));
        };
        // The write holds for what was read now, so this is what has to consent.
        let permission = permission(&there.metadata);
        if permission == Permission::Nothing || is_excluded_type(there.secret_type()) {
            return Ok(not_allowed(live, name));
        }
        let is_fixed = there.is_immutable() || there.secret_type() != wanted.content.secret_type();
        let is_adopted = match permission {
            Permission::Nothing => false,
            Permission::Overwrite => !is_fixed,
            Permission::Compare => wanted.is_held_by(&there),
            Permission::Both => !is_fixed || wanted.is_held_by(&there),
        };
        if !is_adopted {
            let message = match permission {
                Permission::Compare => {
                    "an object of that name exists and holds something else; it is left as it is"
                }
                _ => {
                    "an object of that name exists and is immutable or of another type; delete it, and a copy is \
                     created"
                }
            };
            return Ok(conflict(name, "Conflict", message.to_owned(), Again::Look));
        }
        self.overwrite(live, kind, name, wanted, &there, Origin::Adopted)
            .await
    }

    /// Writes what a copy should be over what is there.
    async fn overwrite(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &Wanted,
        there: &Content,
        origin: Origin,
    ) -> Result<Outcome, Failure> {
        let replaced = self.replace(kind, name, wanted.body_over(there, &live.mark, origin));
        // Who refuses it sees what was there before, too.
        replaced.await.map_err(|failure| failure.without(there))?;
        Ok(Outcome::Synced)
    }

    /// Makes a copy of ours what it should be.
    async fn renew(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &Wanted,
        there: &Content,
    ) -> Result<Outcome, Failure> {
        if wanted.is_as_it_should_be(there, &live.mark) {
            let key = (kind, ObjectKey::namespaced(self.namespace, &**name));
            let state = (Uid::from(there.uid()), there.version());
            self.engine.verified.lock().insert(key, state);
            return Ok(Outcome::Synced);
        }
        let origin = Origin::of(&there.metadata);
        let Some(reason) = wanted.cannot_replace(there) else {
            return self.overwrite(live, kind, name, wanted, there, origin).await;
        };
        if origin == Origin::Adopted {
            let message = "it cannot be changed, and what was adopted is never deleted: delete it, and a copy is created";
            return Ok(wrong(name, reason, message.to_owned(), Again::Never));
        }
        if live.rules.recreate == Recreate::Never {
            let message = "it cannot be changed, only made anew, and `recreate` is `Never`".to_owned();
            return Ok(wrong(name, reason, message, Again::Never));
        }
        self.delete(kind, name, there.uid(), there.version()).await?;
        match self.create(kind, wanted.new_body(&live.mark)).await {
            Ok(()) => Ok(Outcome::Synced),
            // It has finalizers, and goes later.
            Err(failure) if failure.is_already_there() => Ok(Outcome::Waits),
            Err(failure) => Err(failure),
        }
    }
}

/// Whether the target still consents to what became a copy by adoption. What we created needs no such consent.
fn keeps_consent(live: &Live, held: &Held) -> bool {
    !held.is_adopted || live.adoption.holds_for(held.adopt.as_deref())
}

/// Whether an object is still a copy of this source, as it says itself.
fn is_copy_of(there: &Content, source: Uid) -> bool {
    let labels = there.metadata.labels.as_ref();
    let label = labels.and_then(|all| all.get(SOURCE_UID));
    label.is_some_and(|uid| Uid::from(uid.as_str()) == source) && Grip::of(&there.metadata).is_ours
}

/// What a sync's owner may know of another sync: its name if it is in the same namespace.
fn known_as(other: &SyncId, live: &Live) -> String {
    match other {
        SyncId::Declared { namespace, .. } if *namespace != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        SyncId::Annotated { .. } if live.adoption.configured != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        other => other.to_string(),
    }
}

/// The same whatever the object holds: its owner says nothing, and the sync's owner learns nothing.
fn not_allowed(live: &Live, name: &Arc<str>) -> Outcome {
    let whose = match live.rules.adoption {
        AdoptionPolicy::IfIdentical => "the object itself",
        _ => "the object or its namespace",
    };
    let message = format!(
        "an object of that name exists and is left as it is: `{ADOPT}` on {whose} does not name `{}`",
        live.adoption.source
    );
    conflict(name, "AdoptionNotAllowed", message, Again::Look)
}

fn wrong(name: &Arc<str>, reason: &str, message: String, again: Again) -> Outcome {
    Outcome::Wrong(Trouble::new(name, reason, message), again)
}

fn conflict(name: &Arc<str>, reason: &str, message: String, again: Again) -> Outcome {
    let trouble = Trouble::new(name, reason, message);
    Outcome::Wrong(
        Trouble {
            is_conflict: true,
            ..trouble
        },
        again,
    )
}

/// What a request that failed is told as.
pub(crate) fn failed(name: &Arc<str>, failure: &Failure) -> Trouble {
    Trouble::new(name, failure.reason(), failure.to_string())
}
