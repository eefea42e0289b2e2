//! `syncToStdout`: a line for every pod that exists or was deleted.
//!
//! ```text
//!   watch of pods ──► queue (each key once, one worker per key) ──► SyncToStdout ──► Print
//!                                                                       │
//!                                                                       └── printed: key → UID
//! ```
//!
//! It is level-based: a line states whether the pod exists when its key is processed, not what happened. The controller owns
//! the queue and the retries; [`SyncToStdout`] owns the UID of each existing pod that it printed.

use std::{collections::HashMap, future::Future, io};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use windlass::{
    cache::Uid,
    k8s_openapi::api::core::v1::Pod,
    prelude::{Action, Context, Controller, Error, ObjectKey, Reconciler, Request, Watch},
};

use crate::arguments::Scope;

/// How often a failed line is retried, as in client-go's example.
const MAX_RETRIES: u32 = 5;

/// A destination for lines.
pub trait Print: Send + Sync + 'static {
    /// Prints and flushes a line. Failures are retried.
    fn print(&self, line: &str) -> impl Future<Output = io::Result<()>> + Send;
}

/// Prints to standard output.
pub struct Stdout(tokio::sync::Mutex<tokio::io::Stdout>);

impl Default for Stdout {
    fn default() -> Self {
        Self(tokio::sync::Mutex::new(tokio::io::stdout()))
    }
}

impl Print for Stdout {
    async fn print(&self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        let mut stdout = self.0.lock().await;
        stdout.write_all(line.as_bytes()).await?;
        stdout.flush().await
    }
}

/// Reconciler that prints whether a pod exists.
pub struct SyncToStdout<P> {
    printer: P,
    /// The UID of each existing pod that was printed; detects a pod recreated under the same name.
    printed: Mutex<HashMap<ObjectKey, Uid>>,
}

/// The controller that prints with `printer`, for the pods in `scope`.
///
/// Pods in `scope.known` that no longer exist are printed too.
pub fn controller<P: Print>(scope: &Scope, printer: P) -> Controller<Pod, SyncToStdout<P>> {
    Controller::from_watch("podwatch", scope.apply_to(Watch::<Pod>::new()))
        .concurrency(scope.workers)
        .max_retries(MAX_RETRIES)
        .on_dropped(|pod, failures| tracing::error!(%pod, failures, "Dropping pod out of the queue"))
        .triggered_by(futures::stream::iter(scope.known.clone()))
        .reconcile(SyncToStdout {
            printer,
            printed: Mutex::default(),
        })
}

impl<P: Print> Reconciler for SyncToStdout<P> {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let current = ctx.lister::<Pod>()?.get_cached(&key).map(|pod| pod.meta().uid());
        let before = self.printed.lock().get(&key).copied();
        // A pod that was recreated between two reconciles was deleted first.
        if current.is_none() || before.is_some_and(|before| Some(before) != current) {
            self.printer
                .print(&format!("Pod {key} does not exist anymore"))
                .await?;
            self.printed.lock().remove(&key);
        }
        if let Some(uid) = current {
            let line = format!("Sync/Add/Update for Pod {}", key.name());
            self.printer.print(&line).await?;
            self.printed.lock().insert(key, uid);
        }
        Ok(Action::done())
    }
}
