//! Get and list.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    Answer, Api, ListOptions,
    options::{At, parse_revision},
    rendered,
};
use crate::{
    crd,
    registry::Resource,
    request::{Query, Target},
    selector::Selector,
    status::Status,
    storage::{Entry, Key, Revision, Snapshot},
};

/// How long a read waits for a revision that has not come yet, as the real server's watch cache does.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part of a list: what to show, and how to go on.
pub(crate) struct Page {
    pub(super) revision: Revision,
    pub(crate) entries: Vec<Arc<Entry>>,
    next: Option<Next>,
}

impl Page {
    /// The `metadata` of the list.
    pub(crate) fn metadata(&self, resource: &Resource) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if resource.custom {
            metadata["continue"] = "".into();
        }
        if let Some(next) = &self.next {
            metadata["continue"] = next.token.as_str().into();
            if let Some(remaining) = next.remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        metadata
    }
}

struct Next {
    token: String,
    /// Known only where no selector hides how many match.
    remaining: Option<usize>,
}

impl Api {
    pub(crate) async fn get(&self, target: &Target, query: &Query) -> Result<Answer, Status> {
        if let Some(text) = query.text("resourceVersion") {
            let revision = parse_revision(text).map_err(Status::unexplained)?;
            self.wait_for(revision).await?;
        }
        let entry = self.current(target)?;
        Ok(Answer::Object {
            code: 200,
            json: rendered(&entry, &target.resource),
            warnings: Vec::new(),
        })
    }

    pub(crate) async fn list(
        &self,
        target: &Target,
        options: &ListOptions,
        selector: &Selector,
    ) -> Result<Answer, Status> {
        if let At::NotOlderThan(revision) | At::Exact(revision) = options.at {
            self.wait_for(revision).await?;
        }
        Ok(Answer::List(self.page(target, options, selector)?))
    }

    /// Waits a little for a revision that a client has seen elsewhere.
    pub(super) async fn wait_for(&self, revision: Revision) -> Result<(), Status> {
        // Revisions come from this server: one beyond the last was invented or belongs to another server.
        if revision > self.storage.revision() {
            tokio::time::sleep(PATIENCE).await;
        }
        let current = self.storage.revision();
        if revision > current {
            return Err(Status::revision_too_large(revision.0, current.0));
        }
        Ok(())
    }

    pub(super) fn page(
        &self,
        target: &Target,
        options: &ListOptions,
        selector: &Selector,
    ) -> Result<Page, Status> {
        let namespace = Some(&*target.namespace).filter(|namespace| !namespace.is_empty());
        let token = options.continue_token.as_deref().map(Token::parse).transpose()?;
        let (at, after) = match &token {
            Some(token) => (Some(token.revision), Some(token.key(namespace))),
            None => match options.at {
                At::Exact(revision) => (Some(revision), None),
                _ => (None, None),
            },
        };
        let snapshot = self.snapshot(target, at)?;
        let mut entries = Vec::new();
        let mut shown = snapshot
            .range(namespace, after.as_ref())
            .map(|entry| crd::seen(&target.resource, entry.clone()))
            .filter(|e| selector.matches(&e.object));
        let limit = options.limit.unwrap_or(usize::MAX);
        entries.extend(shown.by_ref().take(limit));
        let rest = if options.limit.is_some() { shown.count() } else { 0 };
        let next = entries.last().filter(|_| rest > 0).map(|last| Next {
            token: Token::after(&last.key, snapshot.revision, namespace).text(),
            remaining: selector.is_empty().then_some(rest),
        });
        Ok(Page {
            revision: snapshot.revision,
            entries,
            next,
        })
    }

    pub(crate) fn snapshot(&self, target: &Target, at: Option<Revision>) -> Result<Snapshot, Status> {
        self.storage.snapshot(&target.resource.table, at).map_err(|_| {
            Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )
        })
    }
}

/// Where a paged list goes on: the real server's format, so that tools which look inside find what they expect.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    revision: Revision,
    /// The last key shown, `/namespace/name` or, inside one namespace, `/name`; closed by a NUL.
    start: String,
}

impl Token {
    fn after(key: &Key, revision: Revision, namespace: Option<&str>) -> Self {
        let start = match namespace {
            None if !key.namespace.is_empty() => format!("/{}/{}\0", key.namespace, key.name),
            _ => format!("/{}\0", key.name),
        };
        Self { revision, start }
    }

    fn text(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision.0, "start": self.start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn parse(text: &str) -> Result<Self, Status> {
        let refuse = |why: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|e| refuse(&e.to_string()))?;
        let (token, _) = crate::json::read(&bytes).map_err(|why| refuse(&why))?;
        if token["v"] != "meta.k8s.io/v1" {
            let version = token["v"].as_str().unwrap_or_default();
            return Err(refuse(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let start = token["start"]
            .as_str()
            .ok_or_else(|| refuse("no start"))?
            .trim_start_matches('/')
            .to_owned();
        let revision = Revision(
            token["rv"]
                .as_u64()
                .ok_or_else(|| refuse("incorrect encoded start resourceVersion"))?,
        );
        Ok(Self { revision, start })
    }

    fn key(&self, namespace: Option<&str>) -> Key {
        let start = self.start.trim_end_matches('\0');
        match (namespace, start.split_once('/')) {
            (Some(namespace), _) => Key::new(namespace, start),
            (None, Some((namespace, name))) => Key::new(namespace, name),
            (None, None) => Key::new("", start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_leads_back_to_its_key() {
        for (namespace, key) in [
            (None, Key::new("a", "x")),
            (Some("a"), Key::new("a", "x")),
            (None, Key::new("", "x")),
        ] {
            let token = Token::after(&key, Revision(9), namespace);
            let read = Token::parse(&token.text()).expect("own token");
            assert_eq!((read.key(namespace), read.revision), (key, Revision(9)));
        }
        // A real server's, of a list inside one namespace and of a second page.
        for (text, start) in [
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Im5va2luZFx1MDAwMCJ9",
                "nokind",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9wZzFcdTAwMDAifQ",
                "pg1",
            ),
        ] {
            let token = Token::parse(text).expect("the real server's token");
            assert_eq!(
                (token.revision, token.key(Some("default"))),
                (Revision(359), Key::new("default", start))
            );
        }
        assert!(Token::parse("bm9wZQ").is_err());
    }
}
