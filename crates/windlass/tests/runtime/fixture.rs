//! The namespace of one test case, with helpers for gardens.

use std::{
    ops::Deref,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{kube, prelude::*};
use windlass_suite::{Context as Case, STEP_TIMEOUT, install_crds};

use crate::runtime::garden::{Garden, GardenSpec};

pub(crate) struct Fixture {
    inner: windlass_suite::TestEnvironment,
    probes_created: AtomicUsize,
}

impl Deref for Fixture {
    type Target = windlass_suite::TestEnvironment;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Fixture {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        install_crds(case, [Garden::crd()]).await?;
        Ok(Self {
            inner: windlass_suite::TestEnvironment::new(case),
            probes_created: AtomicUsize::new(0),
        })
    }

    /// Returns and removes the recorded writes to objects whose name contains this, without events.
    pub(crate) fn writes(&self, about: &str) -> Vec<String> {
        let writes = self
            .proxy()
            .take(|sent| sent.is_write() && sent.resource() != "events" && sent.name().contains(about));
        writes.iter().map(ToString::to_string).collect()
    }

    pub(crate) async fn garden(&self, name: &str, beds: &[&str]) -> kube::Result<Garden> {
        let beds = beds.iter().map(ToString::to_string).collect();
        self.create(Garden::new(name, GardenSpec { beds })).await
    }

    /// Waits until all changes so far have been reconciled: a garden that is created now was reconciled, twice in a
    /// row, so that each worker had a turn.
    pub(crate) async fn wait_until_processed(&self) -> anyhow::Result<()> {
        for _ in 0..2 {
            let name = format!("settle-{}", self.probes_created.fetch_add(1, Ordering::Relaxed));
            self.garden(&name, &[]).await?;
            self.wait_for::<Garden>(&name, |garden| garden.status.is_some())
                .await?;
        }
        Ok(())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds the lock")
}

/// Waits until something holds, such as a counter that is incremented after the request that the test sees.
pub(crate) async fn until(holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(tokio::time::timeout(STEP_TIMEOUT, waiting).await?)
}
