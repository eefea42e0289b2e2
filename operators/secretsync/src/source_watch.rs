//! Source watches: one metadata watch per kind and namespace that syncs copy from, however many names and selectors
//! they have.
//!
//! ```text
//!   watch ──► SourceMetadata (of every object) ── rules select ──► Source ──► Member of a sync
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use windlass::{
    cache::{Uid, WatchScope},
    kube::api::ObjectMeta,
};

use crate::{
    adoption::{is_reserved, is_token},
    api::{SOURCE_ANNOTATION, SOURCE_UID_LABEL, SourceKind},
    consent::is_negation,
    content_budget::ContentBudget,
    content_cell::ContentCell,
    identity::SyncId,
    rules::SyncRules,
};

/// Identifies a source watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SourceWatchKey {
    pub(crate) kind: SourceKind,
    pub(crate) namespace: Arc<str>,
}

impl SourceWatchKey {
    pub(crate) fn scope(&self) -> WatchScope {
        WatchScope::all().namespace(&*self.namespace).metadata_only()
    }
}

/// The state of a source watch.
pub(crate) struct SourceWatch {
    /// Number of this watch: late events of a closed watch must not be taken for those of its successor.
    pub(crate) generation: u64,
    /// Whether the initial list is complete.
    pub(crate) is_complete: bool,
    /// All objects, by name; shared with the cache.
    pub(crate) objects: BTreeMap<Arc<str>, Arc<SourceMetadata>>,
    /// The SecretSyncs that use this watch.
    pub(crate) syncs: BTreeSet<SyncId>,
    /// Limits the content that is held.
    pub(crate) budget: Arc<ContentBudget>,
}

impl Default for SourceWatch {
    fn default() -> Self {
        Self {
            generation: 0,
            is_complete: false,
            objects: BTreeMap::new(),
            syncs: BTreeSet::new(),
            budget: Arc::new(ContentBudget::new(usize::MAX)),
        }
    }
}

impl SourceWatch {
    /// Returns the objects that these rules select.
    pub(crate) fn selected<'a>(
        &'a self,
        rules: &'a SyncRules,
    ) -> Box<dyn Iterator<Item = (&'a Arc<str>, &'a Arc<SourceMetadata>)> + 'a> {
        if rules.has_selector() {
            let all = self.objects.iter();
            return Box::new(all.filter(|(name, seen)| rules.selects(name, &seen.labels())));
        }
        let names = rules.names.iter();
        Box::new(names.filter_map(|name| self.objects.get_key_value(name)))
    }
}

/// The relevant metadata of a possible source.
pub(crate) struct SourceMetadata {
    uid: Arc<str>,
    version: u64,
    /// Seconds since 1970.
    created: i64,
    annotation: SourceAnnotation,
    /// It is a service account token.
    is_token: bool,
    /// Whether it is a copy itself.
    is_copy: bool,
    /// The chain of its sources, if it is a copy.
    chain: Option<Arc<str>>,
    /// Keys and values in turn, each terminated by a NUL: a map needs many times the memory.
    labels: Box<str>,
}

/// What the sync annotation of a source says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SourceAnnotation {
    Absent,
    /// It is copied. The value does not matter.
    Sync,
    /// `false`: it is not copied, and its copies are removed.
    Refused,
    /// A word for no that is not `false` is taken for a mistake: nothing is copied or removed because of it.
    Unclear(Box<str>),
}

impl SourceAnnotation {
    pub(crate) fn parse(value: Option<&str>) -> Self {
        match value.map(str::trim) {
            None => Self::Absent,
            Some("false") => Self::Refused,
            Some(value) if is_negation(value) => Self::Unclear(value.into()),
            Some(_) => Self::Sync,
        }
    }
}

impl SourceMetadata {
    /// Extracts the relevant metadata. `annotation` is the key of the annotation on sources.
    pub(crate) fn from_metadata(metadata: &ObjectMeta, annotation: &str) -> Self {
        let annotated = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name));
        let created = metadata.creation_timestamp.as_ref();
        let labels = metadata.labels.iter().flatten();
        let labels = labels.map(|(name, value)| (name.as_str(), value.as_str()));
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata
                .resource_version
                .as_deref()
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            created: created.map_or(0, |time| time.0.as_second()),
            annotation: SourceAnnotation::parse(annotated(annotation).map(String::as_str)),
            is_token: is_token(metadata),
            is_copy: metadata
                .labels
                .as_ref()
                .is_some_and(|all| all.contains_key(SOURCE_UID_LABEL)),
            chain: annotated(SOURCE_ANNOTATION).map(|way| way.as_str().into()),
            labels: labels
                .flat_map(|(name, value)| [name, "\0", value, "\0"])
                .collect(),
        }
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns whether it has the sync annotation, with a value that is not a word for no.
    pub(crate) fn is_annotated(&self) -> bool {
        self.annotation == SourceAnnotation::Sync
    }

    /// Returns whether it says unmistakably that it is not copied.
    pub(crate) fn refuses(&self) -> bool {
        self.annotation == SourceAnnotation::Refused
    }

    /// Returns the value of the sync annotation, if it is taken for a mistake.
    pub(crate) fn unclear_annotation(&self) -> Option<&str> {
        match &self.annotation {
            SourceAnnotation::Unclear(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let mut parts = self.labels.split_terminator('\0').map(str::to_owned);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?))).collect()
    }
}

/// An object that may be copied, at one resource version.
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
    pub(crate) created: i64,
    pub(crate) is_copy: bool,
    is_token: bool,
    way: Option<Arc<str>>,
    /// The metadata that all of this was read from.
    metadata: Arc<SourceMetadata>,
    pub(crate) meter: Arc<ContentBudget>,
    /// Its content, once it was fetched.
    pub(crate) content_cell: Arc<ContentCell>,
}

impl Source {
    pub(crate) fn new(
        key: &SourceWatchKey,
        watch: &SourceWatch,
        name: &Arc<str>,
        seen: &Arc<SourceMetadata>,
        slots: &mut ContentCells,
    ) -> Self {
        Self {
            kind: key.kind,
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(name),
            uid: Arc::clone(&seen.uid),
            version: seen.version,
            created: seen.created,
            is_copy: seen.is_copy,
            is_token: seen.is_token,
            way: seen.chain.clone(),
            metadata: Arc::clone(seen),
            meter: Arc::clone(&watch.budget),
            content_cell: slots.cell_for(&seen.uid),
        }
    }

    /// Returns whether it was created from this metadata.
    pub(crate) fn is_from(&self, seen: &Arc<SourceMetadata>) -> bool {
        Arc::ptr_eq(&self.metadata, seen)
    }

    /// Returns whether its metadata excludes it from being copied.
    pub(crate) fn is_reserved(&self) -> bool {
        is_reserved(self.kind, &self.name) || self.kind == SourceKind::Secret && self.is_token
    }

    /// Returns whether it is known to be excluded: by its name, its metadata, or its type.
    pub(crate) fn is_excluded(&self) -> bool {
        self.is_reserved() || self.kind == SourceKind::Secret && self.content_cell.is_excluded()
    }

    /// Returns the chain of a copy of it: the source itself, and its own sources, nearest first.
    pub(crate) fn chain(&self) -> String {
        let itself = format!("{}/{}", self.namespace, self.name);
        match self.way.as_ref().filter(|_| self.is_copy) {
            Some(earlier) => format!("{itself},{earlier}"),
            None => itself,
        }
    }

    /// Returns whether a copy in this namespace would create a loop.
    pub(crate) fn chain_contains(&self, namespace: &str) -> bool {
        self.chain().split(',').any(|place| {
            place
                .split_once('/')
                .is_some_and(|(found, name)| found == namespace && name == &*self.name)
        })
    }
}

/// Types of Secrets that belong to one cluster, service account or tool, and are never copied.
pub(crate) fn is_excluded_type(secret_type: &str) -> bool {
    matches!(
        secret_type,
        "kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token" | "helm.sh/release.v1"
    )
}

/// One content cell per source, however many syncs use it.
#[derive(Default)]
pub(crate) struct ContentCells(std::collections::HashMap<Uid, Weak<ContentCell>>);

impl ContentCells {
    fn cell_for(&mut self, uid: &str) -> Arc<ContentCell> {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, slot| slot.strong_count() > 0);
        }
        let known = self.0.entry(Uid::from(uid)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let slot = Arc::new(ContentCell::default());
            *known = Arc::downgrade(&slot);
            slot
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_no_are_not_taken_for_yes() {
        for (value, expected) in [
            (None, SourceAnnotation::Absent),
            (Some(""), SourceAnnotation::Sync),
            (Some("true"), SourceAnnotation::Sync),
            (Some("yes"), SourceAnnotation::Sync),
            (Some("nothing special"), SourceAnnotation::Sync),
            (Some("false"), SourceAnnotation::Refused),
            (Some(" false "), SourceAnnotation::Refused),
            (Some("False"), SourceAnnotation::Unclear("False".into())),
            (Some("no"), SourceAnnotation::Unclear("no".into())),
            (Some("OFF"), SourceAnnotation::Unclear("OFF".into())),
            (Some("0"), SourceAnnotation::Unclear("0".into())),
        ] {
            assert_eq!(SourceAnnotation::parse(value), expected, "{value:?}");
        }
    }
}
