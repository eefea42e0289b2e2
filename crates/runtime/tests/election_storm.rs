//! Elections and fenced writers in bad weather: messages are late or lost, and processes stop for a while.
//!
//! The elector alone is tried far harder, with clocks that disagree, where it lives. This is about the whole: driver,
//! channels and fence as a process has them.

mod lab;

use std::{convert::Infallible, future::Future, sync::Arc, task::Poll, time::Duration};

use http::Request;
use kube::{Client, client::Body};
use lab::{Fault, SECOND, carry, config, write};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use windlass_apiserver::Server;
use windlass_runtime::{Election, ElectionStatus, Epoch, Fence, is_fenced};

const SEEDS: std::ops::Range<u64> = 0..12;
const STORM: Duration = Duration::from_mins(5);

/// What all processes share.
#[derive(Clone)]
struct Weather {
    server: Server,
    rng: Arc<Mutex<fastrand::Rng>>,
    calm_at: Instant,
    /// The writes that passed a fence, in order: in which term, and whose.
    passed: Arc<Mutex<Vec<(Epoch, usize)>>>,
}

impl Weather {
    fn is_calm(&self) -> bool {
        Instant::now() >= self.calm_at
    }

    fn up_to(&self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.lock().f64())
    }

    fn fault(&self) -> Option<Fault> {
        let drawn = self.rng.lock().u32(0..100);
        match drawn {
            _ if self.is_calm() => None,
            0..10 => Some(Fault::Lost),
            10..20 => Some(Fault::AnswerLost),
            20..40 => Some(Fault::Slow(self.up_to(SECOND * 20))),
            _ => Some(Fault::Slow(self.up_to(SECOND / 10))),
        }
    }

    /// A client in this weather that calls `sent` for each request.
    fn client(&self, sent: impl Fn() + Send + 'static) -> Client {
        let weather = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            sent();
            let (server, fault) = (weather.server.clone(), weather.fault());
            async move { Ok::<_, Infallible>(carry(server, request, fault).await) }
        });
        Client::new(service, "default")
    }

    /// The same future, but now and then its process does not run.
    async fn with_pauses<T>(self, work: impl Future<Output = T>) -> T {
        let (mut work, mut nap) = (std::pin::pin!(work), Box::pin(sleep(Duration::ZERO)));
        std::future::poll_fn(|cx| {
            if nap.as_mut().poll(cx).is_ready() && !self.is_calm() && self.rng.lock().u32(0..100) < 3 {
                nap.as_mut().reset(Instant::now() + self.up_to(SECOND * 40));
            }
            match nap.as_mut().poll(cx) {
                Poll::Ready(()) => work.as_mut().poll(cx),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Writes whenever it may, and knows of a loss only by its errors.
    async fn write_always(self, who: usize, status: ElectionStatus, fence: Fence) {
        loop {
            let Some(epoch) = status.changed_from(None).await else {
                continue;
            };
            let passed = Arc::clone(&self.passed);
            let client = fence.client_of(self.client(move || passed.lock().push((epoch, who))), epoch);
            loop {
                let name = format!("o{}", self.rng.lock().u64(..));
                let patience = self.up_to(SECOND * 5);
                let written = tokio::time::timeout(patience, write(&client, &name)).await;
                if written.is_ok_and(|written| written.is_err_and(|error| is_fenced(&error))) {
                    break;
                }
                sleep(self.up_to(SECOND)).await;
            }
            sleep(self.up_to(SECOND)).await;
        }
    }
}

/// 192: writes pass the fences in the order of the terms, each term is one process's, and after the storm the work
/// goes on.
#[tokio::test(start_paused = true)]
async fn writes_pass_in_the_order_of_the_terms() {
    let mut terms = 0;
    for seed in SEEDS {
        let weather = Weather {
            server: Server::builder().build(),
            rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            calm_at: Instant::now() + STORM,
            passed: Arc::default(),
        };
        let mut processes = JoinSet::new();
        for who in 0..3 {
            let election = Election::new(weather.client(|| ()), config()).expect("a good configuration");
            let writer = weather
                .clone()
                .write_always(who, election.status(), election.fence());
            processes.spawn(weather.clone().with_pauses(writer));
            let never = std::future::pending::<()>;
            let running = weather.clone().with_pauses(election.run_until(never(), never()));
            processes.spawn(async { drop(running.await) });
        }
        sleep(STORM + SECOND * 90).await;
        let in_the_storm = std::mem::take(&mut *weather.passed.lock());
        sleep(SECOND * 30).await;
        let afterwards = std::mem::take(&mut *weather.passed.lock());
        processes.shutdown().await;

        let in_order = in_the_storm.windows(2).all(|pair| {
            let [(before, first), (after, second)] = pair else {
                return false;
            };
            before < after || (before == after && first == second)
        });
        assert!(in_order, "seed {seed}: {in_the_storm:?}");
        assert!(
            afterwards.len() > 10,
            "seed {seed}: nobody writes after the storm"
        );
        assert_eq!(
            afterwards.first(),
            afterwards.last(),
            "seed {seed}: one leader stays"
        );
        let mut epochs: Vec<_> = in_the_storm.into_iter().map(|(epoch, _)| epoch).collect();
        epochs.dedup();
        terms += epochs.len();
    }
    assert!(terms > 3 * SEEDS.count(), "{terms} terms: leaders hardly changed");
}
