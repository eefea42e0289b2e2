//! What podwatch tells, in the demo: lines for the log, and an account of them for the story's claims.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{mpsc, watch};
use windlass_podwatch::sync::Print;

use super::model::Happening;

/// Where podwatch prints to. Clones are the same place.
#[derive(Clone)]
pub(super) struct Notices {
    lines: mpsc::Sender<Happening>,
    /// By pod: whether the last line about it said that it is there.
    account: Arc<Mutex<BTreeMap<String, bool>>>,
    /// Beats when something was told.
    pulse: watch::Sender<()>,
}

impl Notices {
    pub(super) fn new(lines: mpsc::Sender<Happening>, pulse: watch::Sender<()>) -> Self {
        Self {
            lines,
            account: Arc::default(),
            pulse,
        }
    }

    fn note(&self, name: &str, there: bool) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.insert(name.to_owned(), there);
    }

    /// The pods that were told of last as there, or as gone.
    pub(super) fn told(&self, there: bool) -> Vec<String> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let told = account.iter().filter(|(_, told)| **told == there);
        told.map(|(name, _)| name.clone()).collect()
    }
}

impl Print for Notices {
    async fn print(&self, line: &str) -> io::Result<()> {
        let (topic, name, there) = match line.strip_prefix(THERE) {
            Some(name) => (THERE, name, true),
            None => {
                let key = line.strip_prefix("Pod ").and_then(|rest| rest.strip_suffix(GONE));
                let name = key.map_or(line, |key| key.rsplit('/').next().unwrap_or(key));
                (GONE, name, false)
            }
        };
        self.note(name, there);
        self.pulse.send_replace(());
        let said = Happening::Said {
            who: "podwatch".to_owned(),
            topic: topic.to_owned(),
            text: line.to_owned(),
        };
        // When nobody looks any more, nothing is missed.
        let _ = self.lines.send(said).await;
        Ok(())
    }
}

const THERE: &str = "Sync/Add/Update for Pod ";
const GONE: &str = " does not exist anymore";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_line_about_a_pod_counts_and_each_goes_to_the_log() {
        let (lines, mut shown) = mpsc::channel(8);
        let pulse = watch::Sender::new(());
        let mut beats = pulse.subscribe();
        let notices = Notices::new(lines, pulse);
        for line in [
            "Sync/Add/Update for Pod a",
            "Sync/Add/Update for Pod b",
            "Pod demo/a does not exist anymore",
        ] {
            notices.print(line).await.expect("memory");
            assert!(beats.has_changed().expect("it is held"));
            beats.mark_unchanged();
            let Some(Happening::Said { who, text, .. }) = shown.recv().await else {
                panic!("nobody is told")
            };
            assert_eq!((&*who, &*text), ("podwatch", line));
        }
        assert_eq!(
            (notices.told(true), notices.told(false)),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
        drop(shown);
        notices
            .print("Sync/Add/Update for Pod c")
            .await
            .expect("nobody needs to look");
    }
}
