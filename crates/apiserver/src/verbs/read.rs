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
    crd,
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

pub(crate) async fn get(store: &ObjectStore, target: &Target, query: &Query) -> Result<Answer, Status> {
    if let Some(text) = query.text("resourceVersion") {
        let revision = parse_resource_version(text).map_err(Status::without_reason)?;
        store.wait_for_revision(revision).await?;
    }
    let entry = store.current(target)?;
    Ok(Answer::Object {
        code: 200,
        json: render_entry(&entry, &target.resource),
        warnings: Vec::new(),
    })
}

/// Waits for the revision that a list asks for.
pub(crate) async fn wait_for_list_revision(store: &ObjectStore, options: &ListOptions) -> Result<(), Status> {
    match options.version_match {
        ResourceVersionMatch::NotOlderThan(revision) | ResourceVersionMatch::Exact(revision) => {
            store.wait_for_revision(revision).await
        }
        _ => Ok(()),
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
