//! A sink that remembers what it was told.

use std::sync::Arc;

use anyhow::Context as _;
use futures::future::{BoxFuture, FutureExt, ready};
use tokio::{sync::watch, time::timeout};
use windlass::prelude::{Client, Manager};
use windlass_podwatch::{
    Kind, Notice, Scope, What, Wishes,
    delivery::{Hub, Limits},
    journal::Journal,
    sinks::{Sink, Trouble},
    watch,
};
use windlass_suite::{DEADLINE, Running};

/// Takes notices. Clones are the same ear.
#[derive(Clone, Default)]
pub(crate) struct Ear(Arc<watch::Sender<Vec<Arc<Notice>>>>);

impl Sink for Ear {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>> {
        self.0.send_modify(|heard| heard.push(Arc::clone(notice)));
        ready(Ok(())).boxed()
    }
}

impl Ear {
    pub(crate) fn heard(&self) -> Vec<Arc<Notice>> {
        self.0.borrow().clone()
    }

    /// What was heard, in a few words each.
    pub(crate) fn words(&self) -> Vec<String> {
        self.heard().iter().map(|notice| words(notice)).collect()
    }

    /// Waits until this holds.
    pub(crate) async fn wait(&self, mut holds: impl FnMut(&[Arc<Notice>]) -> bool) -> anyhow::Result<()> {
        let mut heard = self.0.subscribe();
        let held = timeout(DEADLINE, heard.wait_for(|heard| holds(heard)))
            .await
            .is_ok();
        held.then_some(())
            .with_context(|| format!("it never heard enough: {:#?}", self.words()))
    }

    /// Waits until exactly this was heard.
    pub(crate) async fn hears(&self, expected: &[&str]) -> anyhow::Result<()> {
        let same = |heard: &[Arc<Notice>]| {
            heard
                .iter()
                .map(|notice| words(notice))
                .eq(expected.iter().copied())
        };
        self.wait(same)
            .await
            .with_context(|| format!("expected: {expected:#?}"))
    }

    /// Waits until something of this kind was heard about the object of this name.
    pub(crate) async fn hears_of(&self, what: What, name: &str) -> anyhow::Result<Arc<Notice>> {
        let fits = |notice: &Arc<Notice>| notice.what == what && notice.key.name() == name;
        self.wait(|heard| heard.iter().any(fits)).await?;
        self.heard().into_iter().find(fits).context("it was just there")
    }
}

fn words(notice: &Notice) -> String {
    let inferred = if notice.inferred { " (inferred)" } else { "" };
    let changes: Vec<_> = notice.changes.iter().map(|change| change.path.as_str()).collect();
    let changes = if changes.is_empty() {
        String::new()
    } else {
        format!(" {}", changes.join(" "))
    };
    format!(
        "{} {} {}{inferred}{changes}",
        notice.what,
        notice.kind.kind,
        notice.key.name()
    )
}

/// What is watched, and for whom.
pub(crate) struct Watching {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) scope: Scope,
    pub(crate) wishes: Wishes,
    pub(crate) journal: Option<Journal>,
}

impl Watching {
    pub(crate) fn of(kinds: Vec<Kind>, scope: Scope) -> Self {
        Self {
            kinds,
            scope,
            wishes: Wishes::default(),
            journal: None,
        }
    }

    pub(crate) fn add_to(self, manager: Manager, ear: &Ear) -> Manager {
        let sinks = vec![("ear".to_owned(), Limits::default(), Box::new(ear.clone()) as _)];
        let hub = Hub::new(sinks, self.journal, self.wishes.clock).expect("there is a sink");
        watch(manager, self.kinds, &self.scope, self.wishes, &Arc::new(hub))
    }

    pub(crate) fn start(self, client: Client, ear: &Ear) -> Running {
        Running::start(self.add_to(Manager::new(client), ear))
    }
}
