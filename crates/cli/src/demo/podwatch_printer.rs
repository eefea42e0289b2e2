//! Podwatch's printer in the demo: forwards lines to the log, and records them for the scenario's claims.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{mpsc, watch};
use windlass_podwatch::sync::Print;

use super::model::DemoEvent;

/// Receives podwatch's lines. Clones share their state.
#[derive(Clone)]
pub(super) struct PodwatchPrinter {
    lines: mpsc::Sender<DemoEvent>,
    /// By pod name: whether it exists, according to its last line.
    pods: Arc<Mutex<BTreeMap<String, bool>>>,
    /// Notified after each line.
    wake: watch::Sender<()>,
}

impl PodwatchPrinter {
    pub(super) fn new(lines: mpsc::Sender<DemoEvent>, wake: watch::Sender<()>) -> Self {
        Self {
            lines,
            pods: Arc::default(),
            wake,
        }
    }

    fn record(&self, name: &str, exists: bool) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.insert(name.to_owned(), exists);
    }

    /// The pods whose last line says that they exist, or that they do not.
    pub(super) fn pods(&self, exists: bool) -> Vec<String> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let matching = pods.iter().filter(|(_, last)| **last == exists);
        matching.map(|(name, _)| name.clone()).collect()
    }
}

impl Print for PodwatchPrinter {
    async fn print(&self, line: &str) -> io::Result<()> {
        let (topic, name, exists) = match line.strip_prefix(EXISTS_PREFIX) {
            Some(name) => (EXISTS_PREFIX, name, true),
            None => {
                let key = line
                    .strip_prefix("Pod ")
                    .and_then(|rest| rest.strip_suffix(GONE_SUFFIX));
                let name = key.map_or(line, |key| key.rsplit('/').next().unwrap_or(key));
                (GONE_SUFFIX, name, false)
            }
        };
        self.record(name, exists);
        self.wake.send_replace(());
        let message = DemoEvent::Message {
            component: "podwatch".to_owned(),
            topic: topic.to_owned(),
            text: line.to_owned(),
        };
        // An error means that the demo is over.
        let _ = self.lines.send(message).await;
        Ok(())
    }
}

const EXISTS_PREFIX: &str = "Sync/Add/Update for Pod ";
const GONE_SUFFIX: &str = " does not exist anymore";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_forwarded_and_the_last_one_per_pod_recorded() {
        let (lines, mut shown) = mpsc::channel(8);
        let wake = watch::Sender::new(());
        let mut wakes = wake.subscribe();
        let printer = PodwatchPrinter::new(lines, wake);
        for line in [
            "Sync/Add/Update for Pod a",
            "Sync/Add/Update for Pod b",
            "Pod demo/a does not exist anymore",
        ] {
            printer.print(line).await.expect("memory");
            assert!(wakes.has_changed().expect("it is held"));
            wakes.mark_unchanged();
            let Some(DemoEvent::Message { component, text, .. }) = shown.recv().await else {
                panic!("no message")
            };
            assert_eq!((&*component, &*text), ("podwatch", line));
        }
        assert_eq!(
            (printer.pods(true), printer.pods(false)),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
        drop(shown);
        printer
            .print("Sync/Add/Update for Pod c")
            .await
            .expect("works without a receiver");
    }
}
