//! The demo's scenario: actions, and the claims that must hold after each.
//!
//! ```text
//!   chapter: action (a request to the API, as a user makes it) ──► claim (reads of the API, until it holds)
//!                          └────────── DemoEvent ──────────┴──► front end
//! ```
//!
//! The scenario does not depend on the front end. Each chapter lists its claims in advance, so that one that is never reached
//! counts as failed.

mod foo;
mod icecream;
mod many_foos;
mod nodes;
mod reboot;
mod secrets;

use std::time::Duration;

use anyhow::Context;
use futures::future::LocalBoxFuture;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout_at},
};
use windlass::{
    k8s_openapi::api::core::v1::{Namespace, Pod},
    kube::{
        Api, Client, Resource,
        api::{ListParams, PostParams},
        core::NamespaceResourceScope,
    },
    prelude::{from_value, json},
    serde::de::DeserializeOwned,
};
use windlass_cluster::Nodes;

use super::{
    claims::{Ledger, Verdict},
    model::DemoEvent,
    podwatch_printer::PodwatchPrinter,
};

/// The demo's namespace.
const NAMESPACE: &str = "demo";

/// How long changes are batched before the next check.
const BATCH_DELAY: Duration = Duration::from_millis(5);

/// A part of the scenario.
struct Chapter {
    title: &'static str,
    claims: &'static [&'static str],
    run: for<'a> fn(&'a Scenario) -> LocalBoxFuture<'a, anyhow::Result<()>>,
}

static CHAPTERS: &[Chapter] = &[
    nodes::READY,
    foo::CHAPTER,
    icecream::CHAPTER,
    secrets::CHAPTER,
    reboot::ROLL,
    many_foos::CREATE,
    nodes::REBOOT,
    nodes::TAINT,
    many_foos::CLEANUP,
];

/// All claims of the scenario.
pub(super) fn expected_claims() -> Ledger {
    Ledger::new(CHAPTERS.iter().flat_map(|chapter| chapter.claims.iter().copied()))
}

/// One run of the scenario on a cluster.
pub(super) struct Scenario {
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    /// Podwatch's lines.
    pub(super) printer: PodwatchPrinter,
    /// Notified after any change, to check claims again.
    pub(super) wake: watch::Receiver<()>,
    pub(super) events: mpsc::Sender<DemoEvent>,
    /// How long each step is shown.
    pub(super) step_time: Duration,
    /// From then on, steps are not delayed for the viewer.
    pub(super) no_delays_after: Instant,
    /// Claims that do not hold by then have failed.
    pub(super) deadline: Instant,
}

/// `Ok` if a claim holds, else what was found instead.
type CheckResult = Result<(), String>;

impl Scenario {
    /// Runs all chapters. Failed claims are not errors.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let namespace: Namespace = from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.create(&PostParams::default(), &namespace).await?;
        for chapter in CHAPTERS {
            self.emit(DemoEvent::Chapter(chapter.title)).await;
            let outcome = (chapter.run)(self).await;
            outcome.with_context(|| format!("the demo failed in `{}`", chapter.title))?;
        }
        Ok(())
    }

    async fn emit(&self, event: DemoEvent) {
        // An error means that the demo is about to stop.
        let _ = self.events.send(event).await;
    }

    async fn wait(&self, step_time: Duration) {
        sleep(step_time.min(self.no_delays_after.saturating_duration_since(Instant::now()))).await;
    }

    /// Announces and performs an action.
    async fn perform<T, E>(
        &self,
        what: impl Into<String>,
        doing: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T>
    where
        E: Into<anyhow::Error>,
    {
        let what = what.into();
        self.emit(DemoEvent::Action(what.clone())).await;
        self.wait(self.step_time).await;
        doing.await.map_err(Into::into).context(what)
    }

    /// Checks a claim after each change until it holds or the deadline passes.
    async fn check_claim(
        &self,
        claim: &'static str,
        check: impl AsyncFn() -> anyhow::Result<CheckResult>,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut wake = self.wake.clone();
        let verdict = loop {
            // Before the check, so that changes during it cause another one.
            wake.mark_unchanged();
            match check().await.context(claim)? {
                Ok(()) => {
                    let after = started.elapsed();
                    break Verdict::Held { after };
                }
                Err(found) => match timeout_at(self.deadline, wake.changed()).await {
                    Ok(Ok(())) => sleep(BATCH_DELAY).await,
                    Ok(Err(_)) | Err(_) => break Verdict::Failed { found },
                },
            }
        };
        self.emit(DemoEvent::ClaimChecked { claim, verdict }).await;
        self.wait(self.step_time / 2).await;
        Ok(())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Lists all objects of a kind in the demo's namespace.
    async fn list<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        Ok(self.api::<K>().list(&ListParams::default()).await?.items)
    }
}

/// The name of a pod's node.
fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn claims_are_unique() {
        let all: Vec<_> = CHAPTERS.iter().flat_map(|chapter| chapter.claims).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!(expected_claims().claims().len(), all.len());
    }
}
