//! One sync in one namespace: what is too much is taken away, and what should be there is made so.
//!
//! ```text
//!   Plan (what should be) ─┐
//!                          ├─► remove what is not wanted ─► one copy after the other ─► Tally
//!   Held (what is there) ──┘
//! ```
//!
//! It decides from what is there, not from what happened; so it can stop anywhere and be done again. An object that cannot be
//! written does not keep the others from it.

use std::{sync::Arc, time::Duration};

use windlass::{
    cache::{Query, Uid},
    kube::Client,
    prelude::{Action, Context, Error, ObjectKey},
};

use crate::{
    api::{AdoptionPolicy, DeletionPolicy, Recreate, SourceKind},
    content::Content,
    engine::{Cause, Engine},
    figures::Verb,
    held::Held,
    identity::{Mark, SyncId},
    ledger::{Tally, Trouble},
    member::{Wanted, body_unmarked},
    room::{Source, is_excluded_type},
    roster::{Live, Order, Plan, Wish},
    wire::{self, Failure},
};

/// How often somebody looks whether an object that is in the way is still there: nothing tells when it goes.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What became of one copy.
enum Outcome {
    Synced,
    /// It is of a type that is never copied.
    Excluded,
    /// It is not there to be copied, or something else comes first, and will be told.
    Waits,
    Wrong(Trouble, Again),
}

/// Whether trying again can help.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// With growing pauses.
    Retry,
    /// Every now and then.
    Look,
    /// Only a change can.
    Never,
}

/// What is done in one namespace, and for whom.
struct Visit<'a> {
    engine: &'a Engine,
    client: &'a Client,
    namespace: &'a str,
    annotation: Arc<str>,
}

impl Engine {
    /// Brings about what a sync wants in a namespace.
    pub(crate) async fn copy(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        ctx: &Context,
    ) -> Result<Action, Error> {
        let began = self.ledger.lock().begin(sync, namespace);
        let (mut plan, annotation) = {
            let roster = self.roster.read();
            (roster.plan(sync, namespace), Arc::clone(&roster.scope.annotation))
        };
        if matches!(plan, Plan::Wait) {
            // It may have changed since: who waits is noted together with why.
            plan = self.roster.write().plan_or_wait(sync, namespace);
        }
        let order = match plan {
            Plan::Go(order) => order,
            Plan::NoPlace => {
                self.close(sync, namespace, began, Some(Tally::default()), None, ctx);
                return Ok(Action::done());
            }
            Plan::Wait => {
                self.close(sync, namespace, began, None, None, ctx);
                return Ok(Action::done());
            }
        };
        let visit = Visit {
            engine: self,
            client: ctx.client(),
            namespace,
            annotation,
        };
        let mut tally = Tally::default();
        let mut again = Again::Never;
        let mut note = |tally: &mut Tally, trouble: Trouble, how: Again| {
            again = match (again, how) {
                (Again::Retry, _) | (_, Again::Retry) => Again::Retry,
                (Again::Look, _) | (_, Again::Look) => Again::Look,
                (Again::Never, Again::Never) => Again::Never,
            };
            tally.trouble(trouble);
        };
        for (kind, name, held) in self.held_by(sync, namespace) {
            if let Err(failure) = visit.tidy(&order, kind, &name, &held).await {
                note(&mut tally, failed(&name, &failure, None), Again::Retry);
            }
        }
        if let Some(live) = &order.live {
            for wish in &order.wanted {
                if ctx.is_stopping() {
                    return Err("stopped in the middle of the work".into());
                }
                let outcome = visit.bring_about(live, wish).await;
                if !matches!(outcome, Outcome::Excluded) {
                    tally.targets += 1;
                }
                match outcome {
                    Outcome::Synced => tally.synced += 1,
                    Outcome::Excluded => tally.excluded += 1,
                    Outcome::Waits => {}
                    Outcome::Wrong(trouble, how) => note(&mut tally, trouble, how),
                }
            }
        }
        let worst = tally.troubles.first().cloned();
        self.close(sync, namespace, began, Some(tally), order.live.as_ref(), ctx);
        match (again, worst) {
            (Again::Retry, Some(Trouble { name, message, .. })) => {
                Err(format!("cannot copy {name} into {namespace}: {message}").into())
            }
            (Again::Look, _) => Ok(Action::requeue_after(LOOK_AGAIN)),
            _ => Ok(Action::done()),
        }
    }

    /// Notes what was found, and tells of what is new.
    fn close(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        found: Option<Tally>,
        live: Option<&Live>,
        ctx: &Context,
    ) {
        let settled = self.ledger.lock().settle(sync, namespace, began, found);
        if let Some(lag) = settled.lag {
            self.figures.lag.observe(lag);
        }
        for trouble in &settled.new {
            if trouble.is_conflict {
                self.figures.conflicted();
            }
            if let Some(live) = live {
                let message = format!("{namespace}/{}: {}", trouble.name, trouble.message);
                ctx.recorder().warning(&live.reference, &trouble.reason, message);
            }
        }
        self.ask_account(sync);
        if settled.is_quiet && self.roster.read().sync(sync).is_none() {
            self.ledger.lock().forget(sync);
        }
    }

    /// The copies in a namespace that say that they belong to a sync.
    fn held_by(&self, sync: &SyncId, namespace: &str) -> Vec<(SourceKind, Arc<str>, Arc<Held>)> {
        let listers = self.listers();
        let is_of = |kind, name: &str, held: &Held| self.owner(kind, name, held).as_ref() == Some(sync);
        match sync {
            // It has at most one: a copy is called as its source is.
            SyncId::Annotated { kind, name } => {
                let key = ObjectKey::namespaced(namespace, &**name);
                let found = listers.held(*kind).get(&key);
                let own = found.filter(|held| is_of(*kind, name, held));
                own.into_iter()
                    .map(|held| (*kind, Arc::clone(name), held))
                    .collect()
            }
            SyncId::Declared { .. } => {
                let mut own = Vec::new();
                for kind in SourceKind::ALL {
                    let all = listers.held(kind).list_stored(&Query::all().namespace(namespace));
                    for stored in all {
                        let name = stored.key().name();
                        if let Ok(held) = stored.object()
                            && is_of(kind, name, &held)
                        {
                            own.push((kind, Arc::from(name), held));
                        }
                    }
                }
                own
            }
        }
    }
}

impl Visit<'_> {
    /// Takes away a copy that its sync does not want any more.
    async fn tidy(&self, order: &Order, kind: SourceKind, name: &str, held: &Held) -> Result<(), Failure> {
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
        self.replace(kind, name, body_unmarked(&there, kind)).await
    }

    async fn delete(&self, kind: SourceKind, name: &str, uid: &str) -> Result<(), Failure> {
        wire::delete(self.client, kind, self.namespace, name, uid).await?;
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
    async fn bring_about(&self, live: &Live, wish: &Wish) -> Outcome {
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
                let trouble = failed(name, &failure, None);
                return Outcome::Wrong(trouble, Again::Retry);
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
                let trouble = failed(name, &failure, Some(&wanted.content));
                Outcome::Wrong(trouble, Again::Retry)
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
        self.engine.ask(affected.collect(), Cause::Other);
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
            return self.meet(live, kind, name, wanted).await;
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
        if self.was_in_the_way(live, name) && wire::exists(self.client, kind, self.namespace, name).await? {
            // Asked again without a write: it is still there.
            return self.meet(live, kind, name, wanted).await;
        }
        match self.create(kind, wanted.new_body(&live.mark)).await {
            Ok(()) => Ok(Outcome::Synced),
            Err(failure) if failure.is_already_there() => self.meet(live, kind, name, wanted).await,
            Err(failure) => Err(failure),
        }
    }

    /// Whether the last look found somebody else's object.
    fn was_in_the_way(&self, live: &Live, name: &Arc<str>) -> bool {
        let sync = live.mark.sync(live.rules.kind, name);
        self.engine
            .ledger
            .lock()
            .is_in_conflict(&sync, self.namespace, name)
    }

    /// Something of somebody else is there.
    async fn meet(
        &self,
        live: &Live,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &Wanted,
    ) -> Result<Outcome, Failure> {
        let in_the_way = |message: &str| conflict(name, "Conflict", message.to_owned(), Again::Look);
        if live.rules.adoption == AdoptionPolicy::Never {
            return Ok(in_the_way(
                "somebody else's object has that name; it is left as it is",
            ));
        }
        let Some(there) = wire::get(self.client, kind, self.namespace, name).await? else {
            return Ok(in_the_way("somebody else's object had that name"));
        };
        // The cache is behind: it is a copy already, and the watch is about to tell.
        if crate::grip::Grip::of(&there.metadata).is_ours && is_labelled(&there) {
            return Ok(Outcome::Waits);
        }
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
            self.replace(kind, name, wanted.body_over(there, &live.mark))
                .await?;
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

fn is_labelled(there: &Content) -> bool {
    let labels = there.metadata.labels.as_ref();
    labels.is_some_and(|all| all.contains_key(crate::api::SOURCE_UID))
}

fn wrong(name: &Arc<str>, reason: &str, message: String, again: Again) -> Outcome {
    let trouble = Trouble {
        name: Arc::clone(name),
        reason: reason.to_owned(),
        message,
        is_conflict: false,
    };
    Outcome::Wrong(trouble, again)
}

fn conflict(name: &Arc<str>, reason: &str, message: String, again: Again) -> Outcome {
    let trouble = Trouble {
        name: Arc::clone(name),
        reason: reason.to_owned(),
        message,
        is_conflict: true,
    };
    Outcome::Wrong(trouble, again)
}

/// What a request that failed is told as: never with a value, also if the server repeats one.
fn failed(name: &Arc<str>, failure: &Failure, content: Option<&Content>) -> Trouble {
    let message = failure.to_string();
    let message = match content {
        Some(content) if content.appears_in(&message) => {
            "the server's answer is not shown, because it repeats a value".to_owned()
        }
        _ => message,
    };
    Trouble {
        name: Arc::clone(name),
        reason: failure.reason().to_owned(),
        message,
        is_conflict: false,
    }
}
