//! `syncToStdout`: a line for every pod that is there or is not any more.
//!
//! ```text
//!   watch of pods ──► queue (a key once, never with two workers) ──► SyncToStdout ──► Print
//!                                                                        │
//!                                                                        └── told: key → UID
//! ```
//!
//! It is level-based: a line says what is there when the key's turn comes, not what happened. Who owns what: the
//! controller owns the queue and the retries; [`SyncToStdout`] owns what it told, one UID for each pod that is there.

use std::{collections::HashMap, future::Future, io};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use windlass::{
    cache::Uid,
    k8s_openapi::api::core::v1::Pod,
    prelude::{Action, Context, Controller, Error, ObjectKey, Reconciler, Request, Watch},
};

use crate::arguments::Scope;

/// How often a pod's line is tried again after it failed: client-go's example gives up after as many.
const RETRIES: u32 = 5;

/// Where lines go.
pub trait Print: Send + Sync + 'static {
    /// Prints a line; it is out when this returns. What fails is tried again.
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

/// Prints a line for a pod, whether it is there or not.
pub struct SyncToStdout<P> {
    printer: P,
    /// The UID of each pod that is there, as far as it was printed: tells a pod from another one of its name.
    told: Mutex<HashMap<ObjectKey, Uid>>,
}

/// The controller that prints with `printer`, for the pods in `scope`.
///
/// Pods that were known before and are gone are printed too, if `scope` names them.
pub fn controller<P: Print>(scope: &Scope, printer: P) -> Controller<Pod, SyncToStdout<P>> {
    Controller::of("podwatch", scope.narrow(Watch::<Pod>::new()))
        .concurrency(scope.workers)
        .max_retries(RETRIES)
        .on_dropped(|pod, failures| tracing::error!(%pod, failures, "Dropping pod out of the queue"))
        .triggered_by(futures::stream::iter(scope.known.clone()))
        .reconcile(SyncToStdout {
            printer,
            told: Mutex::default(),
        })
}

impl<P: Print> Reconciler for SyncToStdout<P> {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let there = ctx.lister::<Pod>()?.stored(&key).map(|pod| pod.meta().uid());
        let before = self.told.lock().get(&key).copied();
        // A pod that was replaced while nobody looked is gone, too.
        if there.is_none() || before.is_some_and(|before| Some(before) != there) {
            self.printer
                .print(&format!("Pod {key} does not exist anymore"))
                .await?;
            self.told.lock().remove(&key);
        }
        if let Some(uid) = there {
            let line = format!("Sync/Add/Update for Pod {}", key.name());
            self.printer.print(&line).await?;
            self.told.lock().insert(key, uid);
        }
        Ok(Action::done())
    }
}
