//! One case's namespace, with gardens in it.

use std::{
    ops::Deref,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use windlass::{kube, prelude::*};
use windlass_suite::{Context as Case, install};

use crate::garden::{Garden, GardenSpec};

pub(crate) struct World {
    inner: windlass_suite::World,
    settled: AtomicUsize,
}

impl Deref for World {
    type Target = windlass_suite::World;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl World {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        install(case, [Garden::crd()]).await?;
        Ok(Self {
            inner: windlass_suite::World::new(case),
            settled: AtomicUsize::new(0),
        })
    }

    /// The writes to objects with this in their names, since the last call for it. Events are not among them.
    pub(crate) fn writes(&self, about: &str) -> Vec<String> {
        let writes = self
            .wire()
            .take(|sent| sent.is_write() && sent.resource() != "events" && sent.name().contains(about));
        writes.iter().map(ToString::to_string).collect()
    }

    pub(crate) async fn garden(&self, name: &str, beds: &[&str]) -> kube::Result<Garden> {
        let beds = beds.iter().map(ToString::to_string).collect();
        self.create(Garden::new(name, GardenSpec { beds })).await
    }

    /// Returns when everything that has happened so far has had its effect on a declared garden: one that is made now has
    /// been dealt with, and each worker has had a turn since.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..2 {
            let name = format!("settle-{}", self.settled.fetch_add(1, Ordering::Relaxed));
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
