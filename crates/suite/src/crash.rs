//! A controller that dies at any of its requests.
//!
//! ```text
//!   undisturbed:  prepare ──► run ───────────────────────► done ──► state ─┐
//!   for every n:  prepare ──► run ──► dies at request n                    ├─ the same, and no write that must not be
//!                                     run anew ──────────► done ──► state ─┘
//! ```
//!
//! Each run has a namespace of its own and starts from nothing; nothing is shared but the cluster, and where cases are
//! [apart](crate::Suite::apart) not even that.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::DeleteParams};
use serde_json::Value;
use windlass_cluster::Backend;
use windlass_runtime::Manager;

use crate::{Context, Moment, Running, Sent, Wire, World, snapshot::differences};

/// A controller that makes more requests than this has no end.
const MOST: usize = 1_000;

/// What a controller is to do, and what it may do on the way.
pub trait Story {
    /// The client of the controllers in this case: with the rights that they will have. Default: the administrator's.
    fn client(&self, case: &Context) -> impl Future<Output = anyhow::Result<Client>> {
        let client = case.client();
        async { Ok(client) }
    }

    /// Makes what the controllers find when they start.
    fn prepare(&self, world: &World) -> impl Future<Output = anyhow::Result<()>>;

    /// Adds the controllers. Default: none, for a story that says its [`manager`](Self::manager).
    fn controllers(&self, manager: Manager) -> Manager {
        manager
    }

    /// A manager with the controllers, on the world's wire. What is asked of the server for it counts as requests of the
    /// process. Default: one for the world's namespace, with the [`controllers`](Self::controllers).
    fn manager(&self, world: &World) -> impl Future<Output = anyhow::Result<Manager>> {
        let manager = self.controllers(world.manager());
        async { Ok(manager) }
    }

    /// Returns when everything is as it should be. What happens while the controllers run belongs here too; it may be done
    /// twice, since it begins again after a death.
    fn done(&self, world: &World) -> impl Future<Output = anyhow::Result<()>>;

    /// What is there at the end, without what differs from run to run; see [`Snapshot`](crate::Snapshot).
    fn state(&self, world: &World) -> impl Future<Output = anyhow::Result<Value>>;

    /// Whether the controllers may send this. It is asked about writes.
    fn may_write(&self, write: &Sent) -> bool;
}

/// How often a story was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The requests of a run that nothing disturbed.
    pub requests: usize,
    /// The runs in which the controllers died.
    pub deaths: usize,
}

/// Runs the story undisturbed, and then again and again so that its process dies at the n-th request, before it reaches
/// the server and after it had its effect, for every n that there is. A new process then goes on, and must come to the
/// same end; neither may write what it must not.
///
/// Where a run takes real time not every n is tried, but those of 1, 2, 3, 5, 7, 10, 14, 19, …: each a third further.
pub async fn at_every_request(case: &Context, story: &impl Story) -> anyhow::Result<Told> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    at_requests(case, story, |n| n + if embedded { 1 } else { 1 + n / 3 }).await
}

/// The same for a sample of the requests: the first, and after each the one that `next` says. For stories that are long.
pub async fn at_requests(
    case: &Context,
    story: &impl Story,
    next: impl Fn(usize) -> usize,
) -> anyhow::Result<Told> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    let quiet = Duration::from_millis(if embedded { 1000 } else { 200 });
    let run = Run { case, story, quiet };
    let (expected, requests) = run.undisturbed().await.context("undisturbed")?;
    let mut deaths = 0;
    for moment in [Moment::Before, Moment::After] {
        let mut n = 1;
        loop {
            let ended = run.dying(n, moment).await;
            let Some(state) = ended.with_context(|| format!("dead {moment:?} request {n}"))? else {
                break;
            };
            ensure!(
                state == expected,
                "dead {moment:?} request {n} of {requests} it came to another end:\n{}",
                differences(&state, &expected).join("\n")
            );
            deaths += 1;
            n = next(n).max(n + 1);
            ensure!(n < MOST, "after {n} requests it is still not done");
        }
    }
    Ok(Told { requests, deaths })
}

struct Run<'a, S> {
    case: &'a Context,
    story: &'a S,
    /// Nobody who is not done is silent for so long.
    quiet: Duration,
}

impl<S: Story> Run<'_, S> {
    async fn undisturbed(&self) -> anyhow::Result<(Value, usize)> {
        let case = self.case.anew().await?;
        let client = self.story.client(&case).await?;
        let world = World::of(&case, &client);
        self.story.prepare(&world).await?;
        let state = self.to_the_end(&world).await?;
        remove(&case).await?;
        Ok((state, world.wire().requests()))
    }

    /// `None` if the process did not live to see its `n`-th request.
    async fn dying(&self, n: usize, moment: Moment) -> anyhow::Result<Option<Value>> {
        let case = self.case.anew().await?;
        let client = self.story.client(&case).await?;
        let first = World::on(&case, Wire::that_breaks(&client, n, moment));
        self.story.prepare(&first).await?;
        let mut running = None;
        let life = async {
            running = Some(self.start(&first).await?);
            self.done(&first).await
        };
        let died = tokio::select! {
            // Whoever dies at the last request has died.
            biased;
            () = first.wire().died() => true,
            done = life => {
                done?;
                false
            }
        };
        if let Some(running) = running {
            running.kill().await;
        }
        self.check(&first)?;
        let state = if died {
            let second = World::of(&case, &client);
            Some(self.to_the_end(&second).await.context("the process after it")?)
        } else {
            None
        };
        remove(&case).await?;
        Ok(state)
    }

    async fn to_the_end(&self, world: &World) -> anyhow::Result<Value> {
        let running = self.start(world).await?;
        self.done(world).await?;
        running.stop().await?;
        self.check(world)?;
        self.story.state(world).await
    }

    async fn start(&self, world: &World) -> anyhow::Result<Running> {
        Ok(Running::start(self.story.manager(world).await?))
    }

    async fn done(&self, world: &World) -> anyhow::Result<()> {
        self.story.done(world).await?;
        world.wire().quiet(self.quiet).await;
        Ok(())
    }

    fn check(&self, world: &World) -> anyhow::Result<()> {
        for write in world.wire().writes() {
            if !self.story.may_write(&write) {
                bail!("it must not write this: {write} {}", write.body);
            }
        }
        Ok(())
    }
}

async fn remove(case: &Context) -> anyhow::Result<()> {
    if case.is_apart() {
        // Its cluster goes with it.
        return Ok(());
    }
    let namespaces = Api::<Namespace>::all(case.client());
    namespaces
        .delete(case.namespace(), &DeleteParams::background())
        .await?;
    Ok(())
}
