//! Crashes at any request, and restarts.

use std::{path::Path, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Pod},
    kube::core::ApiResource,
    prelude::{Client, Manager, json},
};
use windlass_podwatch::{EventType, Kind, journal::Journal, sync};
use windlass_suite::{
    Context as Case, CrashScenario, RecordedRequest, TestEnvironment, crash_at_every_request,
};

use crate::podwatch::{
    fixture::{pod, shipped},
    notices::config,
    recording_sink::{RecordingSink, WatchConfig},
    scripted_printer::ScriptedPrinter,
};

/// Ignores 404 and 409: a previous lifetime of the process has made the change already.
fn ignore_already_done<T>(done: windlass::kube::Result<T>) -> anyhow::Result<()> {
    match done {
        Err(windlass::kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// Retries, since the previous lifetime may still be writing: a simulated crash takes a moment.
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
struct PrintScenario {
    /// The current lifetime's printer.
    printer: Mutex<ScriptedPrinter>,
    namespace: Mutex<String>,
}

impl CrashScenario for PrintScenario {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        env.case().namespace().clone_into(&mut self.namespace.lock());
        for name in ["a", "b"] {
            env.create(pod(name)).await?;
        }
        env.wait_for::<Pod>("b", |_| true).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let printer = ScriptedPrinter::default();
        *self.printer.lock() = printer.clone();
        let scope = windlass_podwatch::Scope {
            namespaces: vec![self.namespace.lock().clone()],
            ..windlass_podwatch::Scope::default()
        };
        manager.controller(sync::controller(&scope, printer))
    }

    async fn wait_until_done(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        ignore_already_done(env.create(pod("c")).await)?;
        let printer = self.printer.lock().clone();
        let line = |name: &str| format!("Sync/Add/Update for Pod {name}");
        printer
            .wait(|log| ["a", "b", "c"].iter().all(|name| log.lines.contains(&line(name))))
            .await
    }

    async fn end_state(&self, _: &TestEnvironment) -> anyhow::Result<Value> {
        let mut lines = self.printer.lock().lines();
        lines.sort();
        lines.dedup();
        Ok(json!(lines))
    }

    fn may_write(&self, _: &RecordedRequest) -> bool {
        false
    }
}

/// Each lifetime prints the current pods; nothing is ever written to the server.
pub(crate) async fn restart_after_crash_prints_current_pods(case: Case) -> anyhow::Result<()> {
    let report = crash_at_every_request(&case, &PrintScenario::default()).await?;
    assert!(report.crashes >= 2, "{report:?}");
    Ok(())
}

/// The notices of all lifetimes, which share a state file.
struct NoticeScenario {
    sink: Mutex<RecordingSink>,
    folder: Mutex<tempfile::TempDir>,
    namespace: Mutex<String>,
}

impl CrashScenario for NoticeScenario {
    async fn prepare(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        *self.sink.lock() = RecordingSink::default();
        *self.folder.lock() = tempfile::tempdir()?;
        env.case().namespace().clone_into(&mut self.namespace.lock());
        for name in ["a", "b"] {
            env.create(config(name, "1")).await?;
        }
        env.wait_for::<ConfigMap>("b", |_| true).await?;
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
        let mut watching = WatchConfig::new(kinds, scope);
        watching.journal = Some(open(&state));
        watching.add_to(manager, &self.sink.lock())
    }

    async fn wait_until_done(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        ignore_already_done(
            env.patch::<ConfigMap>("a", json!({ "data": { "text": "2" } }))
                .await,
        )?;
        ignore_already_done(env.delete::<ConfigMap>("b").await)?;
        ignore_already_done(env.create(config("c", "1")).await)?;
        let sink = self.sink.lock().clone();
        // The newest state of each; for the deleted one, its deletion or nothing.
        sink.wait(|notices| {
            let last = |name: &str| notices.iter().rev().find(|notice| notice.key.name() == name);
            let text = |name: &str| Some(last(name)?.object.as_ref()?["data"]["text"].clone());
            text("a") == Some(json!("2"))
                && text("c") == Some(json!("1"))
                && last("b").is_none_or(|last| last.event == EventType::Deleted)
        })
        .await
    }

    async fn end_state(&self, _: &TestEnvironment) -> anyhow::Result<Value> {
        let notices = self.sink.lock().notices();
        let last = |name: &str| {
            let last = notices.iter().rev().find(|notice| notice.key.name() == name)?;
            let object = last
                .object
                .as_ref()
                .filter(|_| last.event != EventType::Deleted)?;
            Some(object["data"].clone())
        };
        Ok(json!({ "a": last("a"), "b": last("b"), "c": last("c") }))
    }

    fn may_write(&self, _: &RecordedRequest) -> bool {
        false
    }
}

/// The newest state of each object reaches the sink, whenever the process crashes.
pub(crate) async fn restart_after_crash_reports_every_object(case: Case) -> anyhow::Result<()> {
    let scenario = NoticeScenario {
        sink: Mutex::default(),
        folder: Mutex::new(tempfile::tempdir()?),
        namespace: Mutex::default(),
    };
    let report = crash_at_every_request(&case, &scenario).await?;
    assert!(report.crashes >= 2, "{report:?}");
    Ok(())
}
