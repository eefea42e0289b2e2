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

use windlass::prelude::{Action, Context, Error, ObjectKey};

use crate::{
    api::SourceKind,
    engine::Engine,
    held::Held,
    identity::SyncId,
    ledger::{Tally, Trouble},
    plan::{Live, Plan},
    visit::{Again, Outcome, Visit, failed},
};

/// How often somebody looks whether an object that is in the way is still there: nothing tells when it goes.
///
/// Of many, one a second at most, and each every ten minutes at least.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const LOOK_AT_LAST: Duration = Duration::from_mins(10);

fn look_again(conflicts: u32) -> Duration {
    Duration::from_secs(conflicts.into()).clamp(LOOK_AGAIN, LOOK_AT_LAST)
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
                note(&mut tally, failed(&name, &failure), Again::Retry);
            }
        }
        let is_over = order.live.as_ref().is_some_and(|live| live.is_over);
        if let Some(live) = order.live.as_ref().filter(|live| !live.is_over) {
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
        let conflicts = tally.conflicts;
        // Of what was not looked at, what is known stays.
        let is_known = !is_over || order.wanted.is_empty() || worst.is_some();
        self.close(
            sync,
            namespace,
            began,
            is_known.then_some(tally),
            order.live.as_ref(),
            ctx,
        );
        match (again, worst) {
            (Again::Retry, Some(Trouble { name, message, .. })) => {
                Err(format!("cannot copy {name} into {namespace}: {message}").into())
            }
            (Again::Look, _) => Ok(Action::requeue_after(look_again(conflicts))),
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
        // While many copies are made, a status is told of every now and then.
        if settled.is_quiet || self.is_account_due(sync) {
            self.ask_account(sync);
        }
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
            SyncId::Declared {
                namespace: home,
                name,
            } => {
                let declared = ObjectKey::namespaced(&**home, &**name);
                let of_kind = |kind| {
                    let held = listers.held(kind).of_sync(&declared, Some(namespace));
                    held.into_iter()
                        .map(move |(key, held)| (kind, Arc::from(key.name()), held))
                };
                SourceKind::ALL.into_iter().flat_map(of_kind).collect()
            }
        }
    }
}
