//! Get and list.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Answer, Api, ListOptions,
    options::{ResourceVersionMatch, parse_resource_version},
    paging::ContinueToken,
    render_entry,
};
use crate::{
    crd,
    registry::Resource,
    request::{Query, Target},
    selector::Selector,
    status::Status,
    storage::{Entry, Revision, Snapshot},
};

/// How long a read waits for a revision that the server has not reached yet, like the real server's watch cache.
const FUTURE_REVISION_WAIT: Duration = Duration::from_secs(3);

/// One page of a list, and the token of the next one.
pub(crate) struct Page {
    pub(super) revision: Revision,
    pub(crate) entries: Vec<Arc<Entry>>,
    next: Option<NextPage>,
}

impl Page {
    /// The `metadata` of the list.
    pub(crate) fn metadata(&self, resource: &Resource) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if resource.is_custom {
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

struct NextPage {
    token: String,
    /// How many objects follow; known only without a selector.
    remaining: Option<usize>,
}

impl Api {
    pub(crate) async fn get(&self, target: &Target, query: &Query) -> Result<Answer, Status> {
        if let Some(text) = query.text("resourceVersion") {
            let revision = parse_resource_version(text).map_err(Status::without_reason)?;
            self.wait_for_revision(revision).await?;
        }
        let entry = self.current(target)?;
        Ok(Answer::Object {
            code: 200,
            json: render_entry(&entry, &target.resource),
            warnings: Vec::new(),
        })
    }

    /// Waits for the revision that a list asks for.
    pub(crate) async fn wait_for_list_revision(&self, options: &ListOptions) -> Result<(), Status> {
        match options.version_match {
            ResourceVersionMatch::NotOlderThan(revision) | ResourceVersionMatch::Exact(revision) => {
                self.wait_for_revision(revision).await
            }
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

    /// Waits for a revision that the client has seen.
    pub(super) async fn wait_for_revision(&self, revision: Revision) -> Result<(), Status> {
        // All revisions come from this server: a newer one is invented or another server's.
        if revision > self.storage.revision() {
            tokio::time::sleep(FUTURE_REVISION_WAIT).await;
        }
        let current = self.storage.revision();
        if revision > current {
            return Err(Status::resource_version_too_large(revision.0, current.0));
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
        let token = options
            .continue_token
            .as_deref()
            .map(ContinueToken::parse)
            .transpose()?;
        let (at, after) = match &token {
            Some(token) => (token.revision, Some(token.key(namespace))),
            None => match options.version_match {
                ResourceVersionMatch::Exact(revision) => (Some(revision), None),
                _ => (None, None),
            },
        };
        let snapshot = self.snapshot(target, at).map_err(|too_old| match token {
            Some(token) => token.into_expired_status(),
            None => too_old,
        })?;
        let mut entries = Vec::new();
        let mut selected = snapshot
            .range(namespace, after.as_ref())
            .map(|entry| crd::convert_for_read(&target.resource, entry.clone()))
            .filter(|e| selector.matches(&e.object));
        let limit = options.limit.unwrap_or(usize::MAX);
        entries.extend(selected.by_ref().take(limit));
        let rest = if options.limit.is_some() {
            selected.count()
        } else {
            0
        };
        let next = entries.last().filter(|_| rest > 0).map(|last| NextPage {
            token: ContinueToken::after(&last.key, snapshot.revision, namespace).encode(),
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
