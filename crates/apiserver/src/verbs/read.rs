//! Get and list.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Answer, ListOptions,
    options::{ResourceVersionMatch, parse_resource_version},
    paging::ContinueToken,
    render_entry,
};
use crate::{
    object_store::ObjectStore,
    registry::Resource,
    request::{Query, Target},
    selector::Selector,
    status::Status,
    storage::{Entry, Revision},
};

/// One page of a list, and the token of the next one.
pub(crate) struct Page {
    pub(super) revision: Revision,
    /// As stored: they are converted when they are sent, one at a time.
    pub(crate) entries: Vec<Arc<Entry>>,
    next: Option<NextPage>,
}

impl Page {
    /// The size of its objects, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.object.json().len()).sum()
    }

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

/// The revision that a get has to wait for.
pub(crate) fn required_revision(query: &Query) -> Result<Option<Revision>, Status> {
    let text = query.text("resourceVersion");
    text.map(parse_resource_version)
        .transpose()
        .map_err(Status::without_reason)
}

pub(crate) fn get(store: &ObjectStore, target: &Target) -> Result<Answer, Status> {
    let entry = store.current(target)?;
    Ok(Answer::Object {
        code: 200,
        json: render_entry(&entry, &target.resource),
        warnings: Vec::new(),
    })
}

impl ListOptions {
    /// The revision that a list has to wait for.
    pub(crate) fn required_revision(&self) -> Option<Revision> {
        match self.version_match {
            ResourceVersionMatch::NotOlderThan(revision) | ResourceVersionMatch::Exact(revision) => {
                Some(revision)
            }
            _ => None,
        }
    }
}

pub(crate) fn list(
    store: &ObjectStore,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
) -> Result<Answer, Status> {
    Ok(Answer::List(page(store, target, options, selector)?))
}

pub(super) fn page(
    store: &ObjectStore,
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
    let snapshot = store.snapshot(target, at).map_err(|too_old| match token {
        Some(token) => token.into_expired_status(),
        None => too_old,
    })?;
    let mut entries = Vec::new();
    let mut selected = snapshot
        .range(namespace, after.as_ref())
        .filter(|entry| selector.matches_entry(&target.resource, entry))
        .cloned();
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
