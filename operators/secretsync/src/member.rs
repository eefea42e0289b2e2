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
    content::Content,
    copy_metadata::{CopyMetadata, is_adopted},
    digest::{Digest, DigestBuilder},
    field_ownership::{is_ours, owned_metadata},
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
    /// Whether its copies were compared together. Locked while they are, so that others wait for the result.
    pub(crate) compared: Mutex<bool>,
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
            compared: Mutex::default(),
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
    /// The type of a Secret; empty for a ConfigMap.
    secret_type: Arc<str>,
    /// Identifies all of this.
    pub(crate) digest: Digest,
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
        let (admits, chain) = (|key: &str| rules.keys.admits(key), source.chain());
        let secret_type = copied_type(content.secret_type(), |key| {
            admits(key) && content.keys().any(|(_, found)| found == key)
        });
        let mut digest = DigestBuilder::new();
        digest.add(&*source.uid);
        digest.add(secret_type);
        digest.add(&chain);
        digest.add([u8::from(rules.deletion == DeletionPolicy::Orphan)]);
        content.add_to(&mut digest, admits);
        for map in [&labels, &annotations] {
            digest.add_all(
                map.iter()
                    .map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
            );
        }
        Self {
            rules: Arc::clone(rules),
            kind: source.kind,
            name: Arc::clone(&source.name),
            source_uid: Arc::clone(&source.uid),
            chain,
            labels,
            annotations,
            secret_type: secret_type.into(),
            digest: digest.finish(),
            content,
        }
    }

    fn admits(&self, key: &str) -> bool {
        self.rules.keys.admits(key)
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

    /// Returns the body that replaces a copy that we created, without having read it. It must not have metadata of
    /// others, which would be lost.
    pub(crate) fn replace_body(&self, copy: &CopyMetadata, mark: &SyncOwner) -> Bytes {
        let (labels, annotations) = self.copy_metadata(mark, Origin::Created);
        let metadata = ObjectMeta {
            name: Some(self.name.to_string()),
            uid: Some(copy.uid.to_string()),
            resource_version: Some(copy.version.to_string()),
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
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(HASH_ANNOTATION);
        }
        metadata
    }

    fn body(&self, metadata: &ObjectMeta, over: Option<&Content>, immutable: bool) -> Bytes {
        self.content
            .body(self.kind, &self.secret_type, metadata, over, immutable, |key| {
                self.admits(key)
            })
    }

    /// Returns whether a copy becomes immutable with its source. This cannot be undone, so it is not done to adopted
    /// objects, which go back to the target one day.
    fn makes_immutable(&self, origin: Origin) -> bool {
        self.content.is_immutable() && origin == Origin::Created
    }

    /// Returns whether an object has the desired type and data.
    pub(crate) fn has_content(&self, there: &Content) -> bool {
        there.secret_type() == &*self.secret_type
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

    pub(crate) fn secret_type(&self) -> &str {
        &self.secret_type
    }

    /// Returns why the object can only be replaced by deleting and recreating it, if so.
    pub(crate) fn recreate_reason(&self, there: &Content) -> Option<&'static str> {
        if there.secret_type() != &*self.secret_type {
            return Some("TypeMismatch");
        }
        (there.is_immutable() && !self.has_content(there)).then_some("Immutable")
    }
}

/// Returns the type of a copy with these keys. The server requires certain keys of some types; a copy without them, such
/// as that of a certificate without its key, is of type `Opaque`.
fn copied_type(secret_type: &str, has: impl Fn(&str) -> bool) -> &str {
    // Of each group, one is enough.
    let required: &[&[&str]] = match secret_type {
        "kubernetes.io/tls" => &[&["tls.crt"], &["tls.key"]],
        "kubernetes.io/dockercfg" => &[&[".dockercfg"]],
        "kubernetes.io/dockerconfigjson" => &[&[".dockerconfigjson"]],
        "kubernetes.io/ssh-auth" => &[&["ssh-privatekey"]],
        "kubernetes.io/basic-auth" => &[&["username", "password"]],
        _ => &[],
    };
    let is_complete = required.iter().all(|group| group.iter().any(|key| has(key)));
    if is_complete { secret_type } else { "Opaque" }
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
    let immutable = there.is_immutable();
    there.body(
        kind,
        there.secret_type(),
        &metadata,
        Some(there),
        immutable,
        |_| true,
    )
}
