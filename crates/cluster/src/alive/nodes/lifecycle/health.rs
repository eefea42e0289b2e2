//! Who was heard of when.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

/// When each node was last heard of, by this process's own clock: that of the nodes is not to be trusted. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<HashMap<String, Sign>>>);

struct Sign {
    at: Instant,
    /// What the node last said of itself, to tell news from repetition.
    said: Option<String>,
    /// It was declared to be silent.
    silent: bool,
}

impl Heard {
    fn signs(&self) -> MutexGuard<'_, HashMap<String, Sign>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// The lease was renewed. Whether the node was thought to be silent.
    pub(super) fn renewed(&self, node: &str) -> bool {
        let mut signs = self.signs();
        let sign = signs.get_mut(node);
        sign.is_some_and(|sign| {
            sign.at = Instant::now();
            std::mem::take(&mut sign.silent)
        })
    }

    /// What the node says of itself, and for how long nothing new was heard.
    pub(super) fn says(&self, node: &str, said: Option<&str>) -> Duration {
        let mut signs = self.signs();
        let now = Instant::now();
        let sign = signs.entry(node.to_owned()).or_insert_with(|| Sign {
            at: now,
            said: said.map(str::to_owned),
            silent: false,
        });
        if said.is_some() && sign.said.as_deref() != said {
            sign.said = said.map(str::to_owned);
            sign.at = now;
            sign.silent = false;
        }
        now - sign.at
    }

    pub(super) fn is_silent(&self, node: &str) {
        if let Some(sign) = self.signs().get_mut(node) {
            sign.silent = true;
        }
    }

    pub(super) fn knows(&self, node: &str) -> bool {
        self.signs().contains_key(node)
    }

    pub(super) fn forget(&self, node: &str) -> bool {
        self.signs().remove(node).is_some()
    }
}
