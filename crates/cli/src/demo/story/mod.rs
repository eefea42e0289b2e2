//! What happens in the demo, and what must be true after each step.
//!
//! ```text
//!   chapter: act (a request to the API, as a person makes it) ──► claim (reads of the API, until it holds)
//!                          └────────── Happening ──────────┴──► whoever shows it
//! ```
//!
//! The story knows nothing of screens. Each claim is promised by its chapter before it is told, so that one that is never
//! reached counts as not held.

mod crowd;
mod foo;
mod icecream;
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
    model::Happening,
    notices::Notices,
};

/// Where it all happens.
const NAMESPACE: &str = "demo";

/// Changes come in crowds: how long they are gathered before the next look.
const GATHERING: Duration = Duration::from_millis(5);

/// A part of the story.
struct Chapter {
    title: &'static str,
    /// All that it claims.
    claims: &'static [&'static str],
    tell: for<'a> fn(&'a Story) -> LocalBoxFuture<'a, anyhow::Result<()>>,
}

static CHAPTERS: &[Chapter] = &[
    nodes::READY,
    foo::CHAPTER,
    icecream::CHAPTER,
    secrets::CHAPTER,
    reboot::ROLL,
    crowd::MANY,
    nodes::REBOOT,
    nodes::GIVEN_UP,
    crowd::GONE,
];

/// Everything that the story claims.
pub(super) fn promises() -> Ledger {
    Ledger::promise(CHAPTERS.iter().flat_map(|chapter| chapter.claims.iter().copied()))
}

/// Told once, on one cluster.
pub(super) struct Story {
    pub(super) client: Client,
    pub(super) machines: Nodes,
    /// What podwatch told.
    pub(super) notices: Notices,
    /// Beats when something may have come true.
    pub(super) pulse: watch::Receiver<()>,
    pub(super) stage: mpsc::Sender<Happening>,
    /// How long a person has to see a step.
    pub(super) beat: Duration,
    /// From then on it is late, and hurries: no step waits to be seen.
    pub(super) late: Instant,
    /// What has not come true by then has failed.
    pub(super) deadline: Instant,
}

/// Whether something holds, or else what is there instead.
type Finding = Result<(), String>;

impl Story {
    /// Tells it to the end; claims that do not hold are no errors.
    pub(super) async fn tell(&self) -> anyhow::Result<()> {
        let namespace: Namespace = from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.create(&PostParams::default(), &namespace).await?;
        for chapter in CHAPTERS {
            self.say(Happening::Chapter(chapter.title)).await;
            let told = (chapter.tell)(self).await;
            told.with_context(|| format!("the demo broke off in `{}`", chapter.title))?;
        }
        Ok(())
    }

    async fn say(&self, happening: Happening) {
        // If nobody listens any more the story is about to be dropped.
        let _ = self.stage.send(happening).await;
    }

    async fn wait(&self, beat: Duration) {
        sleep(beat.min(self.late.saturating_duration_since(Instant::now()))).await;
    }

    /// Does something, and says so before.
    async fn act<T, E>(
        &self,
        what: impl Into<String>,
        doing: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T>
    where
        E: Into<anyhow::Error>,
    {
        let what = what.into();
        self.say(Happening::Act(what.clone())).await;
        self.wait(self.beat).await;
        doing.await.map_err(Into::into).context(what)
    }

    /// Asks the API until a claim holds or time is up. It asks again when something has changed.
    async fn claim(
        &self,
        claim: &'static str,
        check: impl AsyncFn() -> anyhow::Result<Finding>,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut pulse = self.pulse.clone();
        let verdict = loop {
            // Before the look: what changes during it is looked at again.
            pulse.mark_unchanged();
            match check().await.context(claim)? {
                Ok(()) => {
                    let after = started.elapsed();
                    break Verdict::Held { after };
                }
                Err(found) => match timeout_at(self.deadline, pulse.changed()).await {
                    Ok(Ok(())) => sleep(GATHERING).await,
                    Ok(Err(_)) | Err(_) => break Verdict::Failed { found },
                },
            }
        };
        self.say(Happening::Settled { claim, verdict }).await;
        self.wait(self.beat / 2).await;
        Ok(())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// All of a kind in the demo's namespace, read from the API.
    async fn all<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        Ok(self.api::<K>().list(&ListParams::default()).await?.items)
    }
}

/// The node that a pod is on.
fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_claims_are_the_same() {
        let all: Vec<_> = CHAPTERS.iter().flat_map(|chapter| chapter.claims).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!(promises().claims().len(), all.len());
    }
}
