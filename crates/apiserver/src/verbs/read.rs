//! Get and list.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Answer, Api, ListOptions,
    options::{At, parse_revision},
    paging::Token,
    rendered,
};
use crate::{
    crd,
    registry::Resource,
    request::{Query, Target},
    selector::Selector,
    status::Status,
    storage::{Entry, Revision, Snapshot},
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

    /// Waits until there is what a list asks for.
    pub(crate) async fn ready_for(&self, options: &ListOptions) -> Result<(), Status> {
        match options.at {
            At::NotOlderThan(revision) | At::Exact(revision) => self.wait_for(revision).await,
            _ => Ok(()),
        }
    }

    pub(crate) fn list(
        &self,
        target: &Target,
        options: &ListOptions,
        selector: &Selector,
    ) -> Result<Answer, Status> {
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
            Some(token) => (token.revision, Some(token.key(namespace))),
            None => match options.at {
                At::Exact(revision) => (Some(revision), None),
                _ => (None, None),
            },
        };
        let snapshot = self.snapshot(target, at).map_err(|too_old| match token {
            Some(token) => token.expired(),
            None => too_old,
        })?;
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
        self.storage
            .snapshot(&target.resource.table, at)
            .map_err(|_| Status::expired("The resourceVersion for the provided list is too old."))
    }
}
