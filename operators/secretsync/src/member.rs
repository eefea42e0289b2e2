//! A source of one sync, and what its copies should be.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::sync::Mutex;
use windlass::kube::{Client, api::ObjectMeta};

use crate::{
    api::{ADOPTED, DELETION_POLICY, DeletionPolicy, HASH, SOURCE, SOURCE_UID, SYNCED_BY, SourceKind},
    content::{Content, Digest},
    grip::{Grip, Owned, is_ours, own_metadata},
    held::is_adopted,
    identity::Mark,
    room::{Source, is_excluded_type},
    rules::Rules,
    wire::Failure,
};

/// A source of one sync.
pub(crate) struct Member {
    pub(crate) source: Arc<Source>,
    rules: Arc<Rules>,
    /// Why it is not copied, whatever it holds.
    pub(crate) refusal: Option<&'static str>,
    /// What its copies hold, once somebody needed to know.
    wanted: Mutex<Option<Arc<Wanted>>>,
}

impl Member {
    /// The one that was known, if nothing about it has changed.
    pub(crate) fn again(known: Option<&Arc<Self>>, source: &Arc<Source>, rules: &Arc<Rules>) -> Arc<Self> {
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
            refusal: is_chained.then_some("it is a copy itself, and `allowChaining` is not set"),
            wanted: Mutex::default(),
        })
    }

    /// Whether it is to be copied, as far as its metadata tells.
    pub(crate) fn counts(&self) -> bool {
        self.refusal.is_none() && !self.source.is_reserved()
    }

    /// What a copy should hold; `None` if the source is gone or is another one now.
    pub(crate) async fn wanted(
        &self,
        client: &Client,
        annotation: &str,
    ) -> Result<Option<Arc<Wanted>>, Failure> {
        let mut kept = self.wanted.lock().await;
        if let Some(wanted) = kept.as_ref() {
            return Ok(Some(Arc::clone(wanted)));
        }
        let Some(content) = self.source.slot.content(&self.source, client).await? else {
            return Ok(None);
        };
        let wanted = Arc::new(Wanted::of(&self.source, content, &self.rules, annotation));
        // What is never copied is not held for longer than it takes to see that.
        if !is_excluded_type(wanted.content.secret_type()) {
            *kept = Some(Arc::clone(&wanted));
        }
        Ok(Some(wanted))
    }
}

/// How a copy came to be one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// We created it.
    Created,
    /// It was there before.
    Adopted,
}

impl Origin {
    /// What an object says about it.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        if is_adopted(metadata) {
            Self::Adopted
        } else {
            Self::Created
        }
    }
}

/// What the copies of a source hold.
pub(crate) struct Wanted {
    pub(crate) content: Arc<Content>,
    rules: Arc<Rules>,
    kind: SourceKind,
    name: Arc<str>,
    source_uid: Arc<str>,
    way: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    pub(crate) digest: Digest,
    /// Which fields we own of a copy that is as it should be: of one that was created, and of one that was adopted.
    fields: [u64; 2],
}

impl Wanted {
    fn of(source: &Source, content: Arc<Content>, rules: &Arc<Rules>, annotation: &str) -> Self {
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
            way: source.way(),
            labels,
            annotations,
            digest,
            fields: [0; 2],
            content,
        };
        wanted.fields = [Origin::Created, Origin::Adopted].map(|origin| wanted.expected_fields(origin));
        wanted
    }

    fn admits(&self, key: &str) -> bool {
        self.rules.keys.admits(key)
    }

    /// Which fields we own of a copy of this origin that is as it should be.
    pub(crate) fn fields(&self, origin: Origin) -> u64 {
        self.fields[origin as usize]
    }

    fn expected_fields(&self, origin: Origin) -> u64 {
        let adopted = (origin == Origin::Adopted).then_some(ADOPTED);
        let orphan = (self.rules.deletion == DeletionPolicy::Orphan).then_some(DELETION_POLICY);
        let keys = self.content.keys().filter(|(_, key)| self.admits(key));
        let mut names: Vec<_> = keys.map(|(field, key)| Owned::key(field, key)).collect();
        names.extend((self.kind == SourceKind::Secret).then_some(Owned::Type));
        names.extend(self.makes_immutable(origin).then_some(Owned::Immutable));
        names.push(Owned::Label(SOURCE_UID));
        names.extend(self.labels.keys().map(|name| Owned::Label(name)));
        names.extend(
            [SOURCE, SYNCED_BY, HASH]
                .into_iter()
                .chain(orphan)
                .chain(adopted)
                .map(Owned::Annotation),
        );
        names.extend(self.annotations.keys().map(|name| Owned::Annotation(name)));
        Grip::wanted(names)
    }

    /// The marks of a copy that this sync writes.
    fn marks(&self, mark: &Mark, origin: Origin) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let (mut labels, mut annotations) = (self.labels.clone(), self.annotations.clone());
        labels.insert(SOURCE_UID.to_owned(), self.source_uid.to_string());
        annotations.insert(SOURCE.to_owned(), self.way.clone());
        annotations.insert(SYNCED_BY.to_owned(), mark.to_string());
        annotations.insert(HASH.to_owned(), self.digest.to_string());
        if self.rules.deletion == DeletionPolicy::Orphan {
            annotations.insert(DELETION_POLICY.to_owned(), "Orphan".to_owned());
        }
        if origin == Origin::Adopted {
            annotations.insert(ADOPTED.to_owned(), "true".to_owned());
        }
        (labels, annotations)
    }

    /// A copy that is not there yet.
    pub(crate) fn new_body(&self, mark: &Mark) -> Bytes {
        let (labels, annotations) = self.marks(mark, Origin::Created);
        let metadata = ObjectMeta {
            name: Some(self.name.to_string()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        self.body(&metadata, None, self.content.is_immutable())
    }

    /// What is there, made a copy: metadata of others stays.
    pub(crate) fn body_over(&self, there: &Content, mark: &Mark, origin: Origin) -> Bytes {
        // What is immutable cannot become mutable again.
        let immutable = self.makes_immutable(origin) || there.is_immutable();
        self.body(&self.metadata_over(there, mark, origin), Some(there), immutable)
    }

    fn metadata_over(&self, there: &Content, mark: &Mark, origin: Origin) -> ObjectMeta {
        let (labels, annotations) = self.marks(mark, origin);
        let (own_labels, own_annotations) = own_metadata(&there.metadata);
        let mut metadata = kept(&there.metadata);
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

    /// Whether a copy becomes immutable with its source. It can never be undone, so it is not done to what was adopted and goes
    /// back to the target one day.
    fn makes_immutable(&self, origin: Origin) -> bool {
        self.content.is_immutable() && origin == Origin::Created
    }

    /// Whether it holds what a copy should.
    pub(crate) fn is_held_by(&self, there: &Content) -> bool {
        there.secret_type() == self.content.secret_type()
            && there.holds(&self.content, |key| self.admits(key))
    }

    /// Whether nothing needs to be written.
    pub(crate) fn is_as_it_should_be(&self, there: &Content, mark: &Mark) -> bool {
        let origin = Origin::of(&there.metadata);
        let metadata = self.metadata_over(there, mark, origin);
        let same = |a: &Option<BTreeMap<_, _>>, b: &Option<BTreeMap<String, String>>| {
            a.iter().flatten().eq(b.iter().flatten())
        };
        self.is_held_by(there)
            && (there.is_immutable() || !self.makes_immutable(origin))
            && same(&metadata.labels, &there.metadata.labels)
            && same(&metadata.annotations, &there.metadata.annotations)
    }

    /// Whether what is there can only become a copy by being made anew.
    pub(crate) fn cannot_replace(&self, there: &Content) -> Option<&'static str> {
        if there.secret_type() != self.content.secret_type() {
            return Some("TypeDiffers");
        }
        (there.is_immutable() && !self.is_held_by(there)).then_some("Immutable")
    }
}

/// Metadata that goes back as it came.
fn kept(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        // Left out, the server keeps what it has.
        managed_fields: None,
        ..metadata.clone()
    }
}

/// A copy without our marks and our share in its managed fields, which belongs to the target alone then.
pub(crate) fn body_unmarked(there: &Content, kind: SourceKind) -> Bytes {
    let mut metadata = kept(&there.metadata);
    // Without an entry that is not ours, an empty list: it resets what the server has.
    let managed = there.metadata.managed_fields.iter().flatten();
    metadata.managed_fields = Some(managed.filter(|entry| !is_ours(entry)).cloned().collect());
    let marks = [ADOPTED, SOURCE, SYNCED_BY, HASH, DELETION_POLICY];
    let ours = |name: &String| marks.contains(&name.as_str());
    metadata
        .labels
        .iter_mut()
        .for_each(|all| drop(all.remove(SOURCE_UID)));
    metadata
        .annotations
        .iter_mut()
        .for_each(|all| all.retain(|name, _| !ours(name)));
    there.body(kind, &metadata, Some(there), there.is_immutable(), |_| true)
}
