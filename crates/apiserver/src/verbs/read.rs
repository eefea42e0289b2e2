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
    auth::Caller,
    crd::{self, Unconverted},
    object_store::ObjectStore,
    registry::Resource,
    request::{Query, Target},
    selector::Selector,
    status::Status,
    storage::{Entry, Revision},
    warnings::Warnings,
};

/// One page of a list, and the token of the next one.
pub(crate) struct Page {
    pub(super) revision: Revision,
    /// As stored: they are converted when they are sent, one at a time. Those that a webhook converts are converted.
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

pub(crate) fn get(store: &ObjectStore, target: &Target, caller: &Caller) -> Result<Answer, Status> {
    let entry = store.current_for(target, Some(caller))?;
    Ok(Answer::Object {
        code: 200,
        json: render_entry(&entry, &target.resource),
        warnings: Warnings::default(),
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

/// Entries that a webhook has to convert before a list or a watch is complete.
#[derive(Default)]
pub(super) struct MissingEntries(Option<Unconverted>);

impl MissingEntries {
    /// The result of reading an entry; `None` if it has to be converted first.
    pub(super) fn collect<T>(&mut self, read: Result<T, Status>) -> Result<Option<T>, Status> {
        let entries = match read {
            Ok(value) => return Ok(Some(value)),
            Err(status) => status.into_unconverted()?,
        };
        match &mut self.0 {
            Some(known) => known.extend(entries),
            None => self.0 = Some(entries),
        }
        Ok(None)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Unconverted::len)
    }

    /// An error if there are some.
    pub(super) fn finish(self) -> Result<(), Status> {
        self.0.map_or(Ok(()), |entries| Err(Status::unconverted(entries)))
    }
}

/// Converts the entries of a list, if a webhook does it. Others are converted when they are sent.
fn convert_all(resource: &Resource, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, Status> {
    if !crd::has_webhook(resource) {
        return Ok(entries);
    }
    let mut missing = MissingEntries::default();
    let mut converted = Vec::with_capacity(entries.len());
    for entry in entries {
        converted.extend(missing.collect(crd::convert_for_read(resource, entry))?);
    }
    missing.finish()?;
    Ok(converted)
}

pub(crate) fn list(
    store: &ObjectStore,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
) -> Result<Answer, Status> {
    Ok(Answer::List {
        page: page(store, target, options, selector)?,
        warnings: Warnings::default(),
    })
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
    let mut missing = MissingEntries::default();
    let (mut entries, mut rest) = (Vec::new(), 0);
    let limit = options.limit.unwrap_or(usize::MAX);
    for entry in snapshot.range(namespace, after.as_ref()) {
        let is_match = selector.matches_entry(&target.resource, entry);
        if missing.collect(is_match)? != Some(true) {
            continue;
        }
        if entries.len() < limit {
            entries.push(entry.clone());
        } else {
            rest += 1;
        }
    }
    missing.finish()?;
    let entries = convert_all(&target.resource, entries)?;
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
