//! Elections and fenced writers under faults: messages are delayed or lost, and processes pause.
//!
//! `election/simulation.rs` tests the elector alone, far harder and with clock drift. This tests the whole: driver,
//! channels and fence.

use crate::candidates;

use std::{convert::Infallible, future::Future, sync::Arc, task::Poll, time::Duration};

use candidates::{Fault, SECOND, config, forward, write};
use http::Request;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use windlass_apiserver::Server;
use windlass_runtime::{Election, ElectionStatus, Epoch, Fence, is_fenced};

const SEEDS: std::ops::Range<u64> = 0..12;
const FAULT_PERIOD: Duration = Duration::from_mins(5);

/// Fault injection shared by all processes.
#[derive(Clone)]
struct FaultInjector {
    server: Server,
    rng: Arc<Mutex<fastrand::Rng>>,
    faults_end: Instant,
    /// The writes that passed a fence, in order: term and process.
    passed: Arc<Mutex<Vec<(Epoch, usize)>>>,
}

impl FaultInjector {
    fn has_no_faults(&self) -> bool {
        Instant::now() >= self.faults_end
    }

    fn up_to(&self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.lock().f64())
    }

    fn fault(&self) -> Option<Fault> {
        let drawn = self.rng.lock().u32(0..100);
        match drawn {
            _ if self.has_no_faults() => None,
            0..10 => Some(Fault::Lost),
            10..20 => Some(Fault::ResponseLost),
            20..40 => Some(Fault::Slow(self.up_to(SECOND * 20))),
            _ => Some(Fault::Slow(self.up_to(SECOND / 10))),
        }
    }

    /// A client with these faults that calls `sent` for each request.
    fn client(&self, sent: impl Fn() + Send + 'static) -> Client {
        let injector = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            sent();
            let (server, fault) = (injector.server.clone(), injector.fault());
            async move { Ok::<_, Infallible>(forward(server, request, fault).await) }
        });
        Client::new(service, "default")
    }

    /// The same future, whose process pauses from time to time.
    async fn with_pauses<T>(self, work: impl Future<Output = T>) -> T {
        let (mut work, mut pause) = (std::pin::pin!(work), Box::pin(sleep(Duration::ZERO)));
        std::future::poll_fn(|cx| {
            if pause.as_mut().poll(cx).is_ready() && !self.has_no_faults() && self.rng.lock().u32(0..100) < 3
            {
                pause.as_mut().reset(Instant::now() + self.up_to(SECOND * 40));
            }
            match pause.as_mut().poll(cx) {
                Poll::Ready(()) => work.as_mut().poll(cx),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Writes continuously, and notices a loss only by errors.
    async fn write_always(self, who: usize, status: ElectionStatus, fence: Fence) {
        loop {
            let Some(epoch) = status.changed_from(None).await else {
                continue;
            };
            let passed = Arc::clone(&self.passed);
            let client = fence.client_for_epoch(self.client(move || passed.lock().push((epoch, who))), epoch);
            loop {
                let name = format!("o{}", self.rng.lock().u64(..));
                let limit = self.up_to(SECOND * 5);
                let written = tokio::time::timeout(limit, write(&client, &name)).await;
                if written.is_ok_and(|written| written.is_err_and(|error| is_fenced(&error))) {
                    break;
                }
                sleep(self.up_to(SECOND)).await;
            }
            sleep(self.up_to(SECOND)).await;
        }
    }
}

/// Writes pass the fences in the order of the terms, each term belongs to one process, and after the faults the work
/// continues.
#[tokio::test(start_paused = true)]
async fn writes_pass_in_order_of_terms() {
    let mut terms = 0;
    for seed in SEEDS {
        let injector = FaultInjector {
            server: Server::builder().build(),
            rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            faults_end: Instant::now() + FAULT_PERIOD,
            passed: Arc::default(),
        };
        let mut processes = JoinSet::new();
        for who in 0..3 {
            let election = Election::new(injector.client(|| ()), config()).expect("valid configuration");
            let writer = injector
                .clone()
                .write_always(who, election.status(), election.fence());
            processes.spawn(injector.clone().with_pauses(writer));
            let never = std::future::pending::<()>;
            let running = injector.clone().with_pauses(election.run_until(never(), never()));
            processes.spawn(async { drop(running.await) });
        }
        sleep(FAULT_PERIOD + SECOND * 90).await;
        let during_faults = std::mem::take(&mut *injector.passed.lock());
        sleep(SECOND * 30).await;
        let afterwards = std::mem::take(&mut *injector.passed.lock());
        processes.shutdown().await;

        let in_order = during_faults.windows(2).all(|pair| {
            let [(before, first), (after, second)] = pair else {
                return false;
            };
            before < after || (before == after && first == second)
        });
        assert!(in_order, "seed {seed}: {during_faults:?}");
        assert!(afterwards.len() > 10, "seed {seed}: no writes after the faults");
        assert_eq!(
            afterwards.first(),
            afterwards.last(),
            "seed {seed}: one leader remains"
        );
        let mut epochs: Vec<_> = during_faults.into_iter().map(|(epoch, _)| epoch).collect();
        epochs.dedup();
        terms += epochs.len();
    }
    assert!(terms > 3 * SEEDS.count(), "{terms} terms: leaders hardly changed");
}
