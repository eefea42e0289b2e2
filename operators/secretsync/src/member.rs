//! A source of one sync, and the desired state of its copies.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::sync::Mutex;
use windlass::kube::{Client, api::ObjectMeta};

use crate::{
    api::{
        ADOPTED_ANNOTATION, DELETION_POLICY_ANNOTATION, DeletionPolicy, HASH_ANNOTATION, SOURCE_ANNOTATION,
        SOURCE_UID_LABEL, SYNCED_BY_ANNOTATION, SourceKind,
    },
    content::{Content, Digest},
    copy_metadata::is_adopted,
    field_ownership::{FieldOwnership, OwnedField, is_ours, owned_metadata},
    identity::SyncOwner,
    requests::RequestError,
    rules::SyncRules,
    source_watch::{Source, is_excluded_type},
};

/// A source of one sync.
pub(crate) struct Member {
    pub(crate) source: Arc<Source>,
    rules: Arc<SyncRules>,
    /// Why it is not copied, whatever its content.
    pub(crate) skip_reason: Option<&'static str>,
    /// The desired state of its copies, once it was needed.
    desired: Mutex<Option<Arc<DesiredCopy>>>,
}

impl Member {
    /// Returns the known member if nothing about it has changed, or a new one.
    pub(crate) fn reuse_or_new(
        known: Option<&Arc<Self>>,
        source: &Arc<Source>,
        rules: &Arc<SyncRules>,
    ) -> Arc<Self> {
        if let Some(known) = known
            && Arc::ptr_eq(&known.source, source)
            && (Arc::ptr_eq(&known.rules, rules) || known.rules == *rules)
        {
            return Arc::clone(known);
        }
        let is_chained = source.is_copy && !rules.allow_chaining;
        Arc::new(Self {
            source: Arc::clone(source),
            rules: Arc::clone(rules),
            skip_reason: is_chained.then_some("it is a copy itself, and `allowChaining` is not set"),
            desired: Mutex::default(),
        })
    }

    /// Returns whether it is to be copied, judging by its metadata.
    pub(crate) fn is_copied(&self) -> bool {
        self.skip_reason.is_none() && !self.source.is_reserved()
    }

    /// Returns the desired state of a copy; `None` if the source was deleted or recreated.
    pub(crate) async fn desired(
        &self,
        client: &Client,
        annotation: &str,
    ) -> Result<Option<Arc<DesiredCopy>>, RequestError> {
        let mut kept = self.desired.lock().await;
        if let Some(wanted) = kept.as_ref() {
            return Ok(Some(Arc::clone(wanted)));
        }
        let Some(content) = self.source.content_cell.content(&self.source, client).await? else {
            return Ok(None);
        };
        let wanted = Arc::new(DesiredCopy::of(&self.source, content, &self.rules, annotation));
        // Excluded content is not held.
        if !is_excluded_type(wanted.content.secret_type()) {
            *kept = Some(Arc::clone(&wanted));
        }
        Ok(Some(wanted))
    }
}

/// How an object became a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// We created it.
    Created,
    /// It existed before.
    Adopted,
}

impl Origin {
    /// Reads it from an object's annotation.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        if is_adopted(metadata) {
            Self::Adopted
        } else {
            Self::Created
        }
    }
}

/// The desired state of the copies of a source.
pub(crate) struct DesiredCopy {
    pub(crate) content: Arc<Content>,
    rules: Arc<SyncRules>,
    kind: SourceKind,
    name: Arc<str>,
    source_uid: Arc<str>,
    chain: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    pub(crate) digest: Digest,
    /// Hashes of the fields that we own of an up-to-date copy: of one that was created, and of one that was adopted.
    field_hashes: [u64; 2],
}

impl DesiredCopy {
    fn of(source: &Source, content: Arc<Content>, rules: &Arc<SyncRules>, annotation: &str) -> Self {
        let none = BTreeMap::new();
        let of = |map: &Option<BTreeMap<String, String>>| map.clone().unwrap_or_else(|| none.clone());
        let labels = rules
            .metadata
            .labels
            .copied(&of(&content.metadata.labels), annotation);
        let annotations = rules
            .metadata
            .annotations
            .copied(&of(&content.metadata.annotations), annotation);
        let digest = content.digest(|key| rules.keys.admits(key), [&labels, &annotations]);
        let mut wanted = Self {
            rules: Arc::clone(rules),
            kind: source.kind,
            name: Arc::clone(&source.name),
            source_uid: Arc::clone(&source.uid),
            chain: source.chain(),
            labels,
            annotations,
            digest,
            field_hashes: [0; 2],
            content,
        };
        wanted.field_hashes = [Origin::Created, Origin::Adopted].map(|origin| wanted.expected_fields(origin));
        wanted
    }

    fn admits(&self, key: &str) -> bool {
        self.rules.keys.admits(key)
    }

    /// Returns the hash of the fields that we own of an up-to-date copy of this origin.
    pub(crate) fn field_hash(&self, origin: Origin) -> u64 {
        self.field_hashes[origin as usize]
    }

    fn expected_fields(&self, origin: Origin) -> u64 {
        let adopted = (origin == Origin::Adopted).then_some(ADOPTED_ANNOTATION);
        let orphan = (self.rules.deletion == DeletionPolicy::Orphan).then_some(DELETION_POLICY_ANNOTATION);
        let keys = self.content.keys().filter(|(_, key)| self.admits(key));
        let mut names: Vec<_> = keys.map(|(field, key)| OwnedField::key(field, key)).collect();
        names.extend((self.kind == SourceKind::Secret).then_some(OwnedField::Type));
        names.extend(self.makes_immutable(origin).then_some(OwnedField::Immutable));
        names.push(OwnedField::Label(SOURCE_UID_LABEL));
        names.extend(self.labels.keys().map(|name| OwnedField::Label(name)));
        names.extend(
            [SOURCE_ANNOTATION, SYNCED_BY_ANNOTATION, HASH_ANNOTATION]
                .into_iter()
                .chain(orphan)
                .chain(adopted)
                .map(OwnedField::Annotation),
        );
        names.extend(self.annotations.keys().map(|name| OwnedField::Annotation(name)));
        FieldOwnership::expected_hash(names)
    }

    /// Returns the labels and annotations of a copy that this sync writes.
    fn copy_metadata(
        &self,
        mark: &SyncOwner,
        origin: Origin,
    ) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let (mut labels, mut annotations) = (self.labels.clone(), self.annotations.clone());
        labels.insert(SOURCE_UID_LABEL.to_owned(), self.source_uid.to_string());
        annotations.insert(SOURCE_ANNOTATION.to_owned(), self.chain.clone());
        annotations.insert(SYNCED_BY_ANNOTATION.to_owned(), mark.to_string());
        annotations.insert(HASH_ANNOTATION.to_owned(), self.digest.to_string());
        if self.rules.deletion == DeletionPolicy::Orphan {
            annotations.insert(DELETION_POLICY_ANNOTATION.to_owned(), "Orphan".to_owned());
        }
        if origin == Origin::Adopted {
            annotations.insert(ADOPTED_ANNOTATION.to_owned(), "true".to_owned());
        }
        (labels, annotations)
    }

    /// Returns the body that creates a copy.
    pub(crate) fn create_body(&self, mark: &SyncOwner) -> Bytes {
        let (labels, annotations) = self.copy_metadata(mark, Origin::Created);
        let metadata = ObjectMeta {
            name: Some(self.name.to_string()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        self.body(&metadata, None, self.content.is_immutable())
    }

    /// Returns the body that updates an existing object; metadata of other field managers stays.
    pub(crate) fn update_body(&self, there: &Content, mark: &SyncOwner, origin: Origin) -> Bytes {
        // An immutable object cannot become mutable again.
        let immutable = self.makes_immutable(origin) || there.is_immutable();
        self.body(&self.update_metadata(there, mark, origin), Some(there), immutable)
    }

    fn update_metadata(&self, there: &Content, mark: &SyncOwner, origin: Origin) -> ObjectMeta {
        let (labels, annotations) = self.copy_metadata(mark, origin);
        let (own_labels, own_annotations) = owned_metadata(&there.metadata);
        let mut metadata = writable_metadata(&there.metadata);
        let merge = |map: &mut Option<BTreeMap<String, String>>, own: &[String], ours| {
            let map = map.get_or_insert_default();
            map.retain(|name, _| !own.contains(name));
            map.extend(ours);
        };
        merge(&mut metadata.labels, &own_labels, labels);
        merge(&mut metadata.annotations, &own_annotations, annotations);
        metadata
    }

    fn body(&self, metadata: &ObjectMeta, over: Option<&Content>, immutable: bool) -> Bytes {
        self.content
            .body(self.kind, metadata, over, immutable, |key| self.admits(key))
    }

    /// Returns whether a copy becomes immutable with its source. This cannot be undone, so it is not done to adopted
    /// objects, which go back to the target one day.
    fn makes_immutable(&self, origin: Origin) -> bool {
        self.content.is_immutable() && origin == Origin::Created
    }

    /// Returns whether an object has the desired type and data.
    pub(crate) fn has_content(&self, there: &Content) -> bool {
        there.secret_type() == self.content.secret_type()
            && there.has_same_data(&self.content, |key| self.admits(key))
    }

    /// Returns whether nothing needs to be written.
    pub(crate) fn is_up_to_date(&self, there: &Content, mark: &SyncOwner) -> bool {
        let origin = Origin::of(&there.metadata);
        let metadata = self.update_metadata(there, mark, origin);
        let same = |a: &Option<BTreeMap<_, _>>, b: &Option<BTreeMap<String, String>>| {
            a.iter().flatten().eq(b.iter().flatten())
        };
        self.has_content(there)
            && (there.is_immutable() || !self.makes_immutable(origin))
            && same(&metadata.labels, &there.metadata.labels)
            && same(&metadata.annotations, &there.metadata.annotations)
    }

    /// Returns why the object can only be replaced by deleting and recreating it, if so.
    pub(crate) fn recreate_reason(&self, there: &Content) -> Option<&'static str> {
        if there.secret_type() != self.content.secret_type() {
            return Some("TypeMismatch");
        }
        (there.is_immutable() && !self.has_content(there)).then_some("Immutable")
    }
}

/// Metadata that is written back unchanged.
fn writable_metadata(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        // If omitted, the server keeps its own.
        managed_fields: None,
        ..metadata.clone()
    }
}

/// Returns the body of a released object: without our labels, annotations and managed fields.
pub(crate) fn released_body(there: &Content, kind: SourceKind) -> Bytes {
    let mut metadata = writable_metadata(&there.metadata);
    // If no other entries are left, an empty list, which resets the server's.
    let managed = there.metadata.managed_fields.iter().flatten();
    metadata.managed_fields = Some(managed.filter(|entry| !is_ours(entry)).cloned().collect());
    let marks = [
        ADOPTED_ANNOTATION,
        SOURCE_ANNOTATION,
        SYNCED_BY_ANNOTATION,
        HASH_ANNOTATION,
        DELETION_POLICY_ANNOTATION,
    ];
    let ours = |name: &String| marks.contains(&name.as_str());
    metadata
        .labels
        .iter_mut()
        .for_each(|all| drop(all.remove(SOURCE_UID_LABEL)));
    metadata
        .annotations
        .iter_mut()
        .for_each(|all| all.retain(|name, _| !ours(name)));
    there.body(kind, &metadata, Some(there), there.is_immutable(), |_| true)
}
