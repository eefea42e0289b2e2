//! One copy: compared with what it should be, and written if it differs.

use std::sync::Arc;

use windlass::{
    cache::Uid,
    kube::{Client, api::ObjectMeta},
    prelude::ObjectKey,
};

use crate::{
    api::{AdoptionPolicy, DeletionPolicy, Recreate, SOURCE_UID, SourceKind},
    content::Content,
    engine::Engine,
    figures::Verb,
    grip::Grip,
    held::Held,
    identity::Mark,
    ledger::Trouble,
    member::{Wanted, body_unmarked},
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
            // The older sync with the same source takes it over; with another one it waits until it is gone.
            let is_free = wish.rival.as_ref().is_none_or(|rival| rival.is_same_source);
            source.kind == kind && &*source.name == name && Uid::from(&*source.uid) == held.source && is_free
        });
        if is_wanted || held.is_deleting || !held.grip.is_ours {
            return Ok(());
        }
        let stays = match &order.live {
            Some(live) if held.mark.as_deref() == Some(&*live.mark) => {
                live.is_deleting && live.rules.deletion == DeletionPolicy::Orphan
            }
            _ => held.stays,
        };
        if stays {
            self.release(kind, name, held).await
        } else {
            self.delete(kind, name, &held.uid.to_string()).await
        }
    }

    /// Takes our marks off, and leaves the rest.
    async fn release(&self, kind: SourceKind, name: &str, held: &Held) -> Result<(), Failure> {
        let there = wire::get(self.client, kind, self.namespace, name).await?;
        let Some(there) = there.filter(|there| Uid::from(there.uid()) == held.uid) else {
            return Ok(());
        };
        let released = self.replace(kind, name, body_unmarked(&there, kind)).await;
        released.map_err(|failure| failure.without(&there))
    }

    async fn delete(&self, kind: SourceKind, name: &str, uid: &str) -> Result<(), Failure> {
        let deleted = wire::delete(self.client, kind, self.namespace, name, uid).await;
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
            return excluded("a service account's token, or the record of a Helm release,");
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
        if let Some(rival) = &wish.rival {
            let message = format!("an older sync wants it too: {}", rival.sync);
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
        let is_marked = held.mark.as_deref() == Some(&*live.mark);
        let grip = &held.grip;
        let is_untouched = grip.fields == wanted.fields && !grip.is_meddled;
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
        if Uid::from(there.uid()) != held.uid {
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
            Some(owner) => format!("it is a copy that belongs to {owner}"),
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
        let in_the_way = |message: &str| conflict(name, "Conflict", message.to_owned(), Again::Look);
        if live.rules.adoption == AdoptionPolicy::Never {
            return Ok(in_the_way(
                "somebody else's object has that name; it is left as it is",
            ));
        }
        let found = wire::get(self.client, kind, self.namespace, name).await?;
        let Some(there) = found.filter(|found| Some(found.uid()) == there.uid.as_deref()) else {
            return Err(Failure::Other(
                "it was replaced while it was looked at".to_owned(),
            ));
        };
        if live.rules.adoption == AdoptionPolicy::IfIdentical && !wanted.is_held_by(&there) {
            return Ok(in_the_way(
                "somebody else's object has that name and holds something else; it is left as it is",
            ));
        }
        self.renew(live, kind, name, wanted, &there).await
    }

    /// Makes what is there what it should be.
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
        let Some(reason) = wanted.cannot_replace(there) else {
            let replaced = self.replace(kind, name, wanted.body_over(there, &live.mark));
            // Who refuses it sees what was there before, too.
            replaced.await.map_err(|failure| failure.without(there))?;
            return Ok(Outcome::Synced);
        };
        if live.rules.recreate == Recreate::Never {
            let message = "it cannot be changed, only made anew, and `recreate` is `Never`".to_owned();
            return Ok(wrong(name, reason, message, Again::Never));
        }
        self.delete(kind, name, there.uid()).await?;
        match self.create(kind, wanted.new_body(&live.mark)).await {
            Ok(()) => Ok(Outcome::Synced),
            // It has finalizers, and goes later.
            Err(failure) if failure.is_already_there() => Ok(Outcome::Waits),
            Err(failure) => Err(failure),
        }
    }
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
