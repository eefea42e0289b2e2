//! A process that dies at any of its requests, and the one after it.

use std::{path::Path, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Pod},
    kube::core::ApiResource,
    prelude::{Client, Manager, json},
};
use windlass_podwatch::{Kind, What, journal::Journal, sync};
use windlass_suite::{Context as Case, Sent, Story, World, at_every_request};

use crate::{
    ear::{Ear, Watching},
    paper::Paper,
    watching::config,
    world::{pod, shipped},
};

/// Whatever was there or not, it is now as the story wants it.
fn whichever<T>(done: windlass::kube::Result<T>) -> anyhow::Result<()> {
    match done {
        Err(windlass::kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// The process before may still be writing: within one process, being killed takes a moment.
fn open(state: &Path) -> Journal {
    let mut opened = Journal::open(state);
    for _ in 0..500 {
        if opened.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        opened = Journal::open(state);
    }
    opened.expect("a state file")
}

#[derive(Default)]
struct Lines {
    /// Of the process that runs.
    paper: Mutex<Paper>,
    namespace: Mutex<String>,
}

impl Story for Lines {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, world: &World) -> anyhow::Result<()> {
        world.case().namespace().clone_into(&mut self.namespace.lock());
        for name in ["a", "b"] {
            world.create(pod(name)).await?;
        }
        world.wait_for::<Pod>("b", |_| true).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let paper = Paper::default();
        *self.paper.lock() = paper.clone();
        let scope = windlass_podwatch::Scope {
            namespaces: vec![self.namespace.lock().clone()],
            ..windlass_podwatch::Scope::default()
        };
        manager.controller(sync::controller(&scope, paper))
    }

    async fn done(&self, world: &World) -> anyhow::Result<()> {
        whichever(world.create(pod("c")).await)?;
        let paper = self.paper.lock().clone();
        let printed = |name: &str| format!("Sync/Add/Update for Pod {name}");
        paper
            .wait(|sheet| {
                ["a", "b", "c"]
                    .iter()
                    .all(|name| sheet.lines.contains(&printed(name)))
            })
            .await
    }

    async fn state(&self, _: &World) -> anyhow::Result<Value> {
        let mut lines = self.paper.lock().lines();
        lines.sort();
        lines.dedup();
        Ok(json!(lines))
    }

    fn may_write(&self, _: &Sent) -> bool {
        false
    }
}

/// Each life prints what is there; nothing is ever written.
pub(crate) async fn whenever_it_dies_the_next_one_prints_what_is_there(case: Case) -> anyhow::Result<()> {
    let told = at_every_request(&case, &Lines::default()).await?;
    assert!(told.deaths >= 2, "{told:?}");
    Ok(())
}

/// What is told by all lives together, which share a state file.
struct Notices {
    ear: Mutex<Ear>,
    folder: Mutex<tempfile::TempDir>,
    namespace: Mutex<String>,
}

impl Story for Notices {
    async fn prepare(&self, world: &World) -> anyhow::Result<()> {
        *self.ear.lock() = Ear::default();
        *self.folder.lock() = tempfile::tempdir()?;
        world.case().namespace().clone_into(&mut self.namespace.lock());
        for name in ["a", "b"] {
            world.create(config(name, "1")).await?;
        }
        world.wait_for::<ConfigMap>("b", |_| true).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let kinds = vec![Kind {
            resource: ApiResource::erase::<ConfigMap>(&()),
            namespaced: true,
            installed: true,
        }];
        let scope = windlass_podwatch::Scope {
            namespaces: vec![self.namespace.lock().clone()],
            ..windlass_podwatch::Scope::default()
        };
        let state = self.folder.lock().path().join("state");
        let mut watching = Watching::of(kinds, scope);
        watching.journal = Some(open(&state));
        watching.add_to(manager, &self.ear.lock())
    }

    async fn done(&self, world: &World) -> anyhow::Result<()> {
        whichever(
            world
                .patch::<ConfigMap>("a", json!({ "data": { "text": "2" } }))
                .await,
        )?;
        whichever(world.delete::<ConfigMap>("b").await)?;
        whichever(world.create(config("c", "1")).await)?;
        let ear = self.ear.lock().clone();
        // Of each, the newest; of what is gone, nothing or its end.
        ear.wait(|heard| {
            let last = |name: &str| heard.iter().rev().find(|notice| notice.key.name() == name);
            let text = |name: &str| Some(last(name)?.object.as_ref()?["data"]["text"].clone());
            text("a") == Some(json!("2"))
                && text("c") == Some(json!("1"))
                && last("b").is_none_or(|last| last.what == What::Deleted)
        })
        .await
    }

    async fn state(&self, _: &World) -> anyhow::Result<Value> {
        let heard = self.ear.lock().heard();
        let last = |name: &str| {
            let last = heard.iter().rev().find(|notice| notice.key.name() == name)?;
            let object = last.object.as_ref().filter(|_| last.what != What::Deleted)?;
            Some(object["data"].clone())
        };
        Ok(json!({ "a": last("a"), "b": last("b"), "c": last("c") }))
    }

    fn may_write(&self, _: &Sent) -> bool {
        false
    }
}

/// Whoever listens hears of the newest state of each object, whenever the process dies.
pub(crate) async fn whenever_it_dies_nothing_stays_untold(case: Case) -> anyhow::Result<()> {
    let story = Notices {
        ear: Mutex::default(),
        folder: Mutex::new(tempfile::tempdir()?),
        namespace: Mutex::default(),
    };
    let told = at_every_request(&case, &story).await?;
    assert!(told.deaths >= 2, "{told:?}");
    Ok(())
}
