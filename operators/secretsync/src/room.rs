//! Where sources are found: one watch of metadata for each kind and namespace that somebody copies from, however many names and
//! selectors they ask for.
//!
//! ```text
//!   watch ──► Seen (words of metadata, of everything that is there) ── rules select ──► Source ──► Member of a sync
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use windlass::{
    cache::{Selection, Uid},
    kube::api::ObjectMeta,
};

use crate::{
    adoption::{is_reserved, is_token},
    api::{SOURCE, SOURCE_UID, SourceKind},
    identity::SyncId,
    meter::Meter,
    rules::Rules,
    slot::Slot,
};

/// What a room is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RoomKey {
    pub(crate) kind: SourceKind,
    pub(crate) namespace: Arc<str>,
}

impl RoomKey {
    pub(crate) fn selection(&self) -> Selection {
        Selection::all().namespace(&*self.namespace).metadata_only()
    }
}

/// The objects of a room, as far as they are known.
pub(crate) struct Room {
    /// Which opening of the room this is: what a closed watch still tells is not taken for what the next one does.
    pub(crate) opening: u64,
    /// All that was there at the start is known.
    pub(crate) is_complete: bool,
    /// Everything that is there; shared with the cache.
    pub(crate) seen: BTreeMap<Arc<str>, Arc<Seen>>,
    /// The SecretSyncs that look for sources here.
    pub(crate) users: BTreeSet<SyncId>,
    /// How much of their content is held.
    pub(crate) meter: Arc<Meter>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            opening: 0,
            is_complete: false,
            seen: BTreeMap::new(),
            users: BTreeSet::new(),
            meter: Arc::new(Meter::new(usize::MAX)),
        }
    }
}

impl Room {
    /// What these rules copy of it.
    pub(crate) fn selected<'a>(
        &'a self,
        rules: &'a Rules,
    ) -> Box<dyn Iterator<Item = (&'a Arc<str>, &'a Arc<Seen>)> + 'a> {
        if rules.has_selector() {
            let all = self.seen.iter();
            return Box::new(all.filter(|(name, seen)| rules.selects(name, &seen.labels())));
        }
        let names = rules.names.iter();
        Box::new(names.filter_map(|name| self.seen.get_key_value(name)))
    }
}

/// What is kept of an object that may be a source: words of its metadata.
pub(crate) struct Seen {
    uid: Arc<str>,
    version: u64,
    /// Seconds since 1970.
    created: i64,
    annotations: Annotations,
    /// It is a copy itself.
    is_copy: bool,
    /// Where it came from, if it is a copy.
    way: Option<Arc<str>>,
    /// Names and values in turn, each ended by a NUL: a map takes many times as much.
    labels: Box<str>,
}

/// Which of the annotations that matter it has.
#[derive(Clone, Copy)]
pub(crate) struct Annotations {
    /// It asks to be copied.
    is_annotated: bool,
    /// It is a service account's token.
    is_token: bool,
}

impl Seen {
    /// `annotation` is the name of the annotation on sources.
    pub(crate) fn of(metadata: &ObjectMeta, annotation: &str) -> Self {
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
            annotations: Annotations {
                is_annotated: annotated(annotation).is_some_and(|value| value != "false"),
                is_token: is_token(metadata),
            },
            is_copy: metadata
                .labels
                .as_ref()
                .is_some_and(|all| all.contains_key(SOURCE_UID)),
            way: annotated(SOURCE).map(|way| way.as_str().into()),
            labels: labels
                .flat_map(|(name, value)| [name, "\0", value, "\0"])
                .collect(),
        }
    }

    /// Whether it asks to be copied.
    pub(crate) fn is_annotated(&self) -> bool {
        self.annotations.is_annotated
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let mut parts = self.labels.split_terminator('\0').map(str::to_owned);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?))).collect()
    }
}

/// An object that may be copied, in one state.
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
    /// What all of this was read from.
    seen: Arc<Seen>,
    pub(crate) meter: Arc<Meter>,
    /// Its content, once somebody needed it.
    pub(crate) slot: Arc<Slot>,
}

impl Source {
    pub(crate) fn new(
        key: &RoomKey,
        room: &Room,
        name: &Arc<str>,
        seen: &Arc<Seen>,
        slots: &mut Slots,
    ) -> Self {
        Self {
            kind: key.kind,
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(name),
            uid: Arc::clone(&seen.uid),
            version: seen.version,
            created: seen.created,
            is_copy: seen.is_copy,
            is_token: seen.annotations.is_token,
            way: seen.way.clone(),
            seen: Arc::clone(seen),
            meter: Arc::clone(&room.meter),
            slot: slots.of(&seen.uid),
        }
    }

    /// Whether it is this state of the object.
    pub(crate) fn is(&self, seen: &Arc<Seen>) -> bool {
        Arc::ptr_eq(&self.seen, seen)
    }

    /// Whether its metadata says that it is never copied.
    pub(crate) fn is_reserved(&self) -> bool {
        is_reserved(self.kind, &self.name) || self.kind == SourceKind::Secret && self.is_token
    }

    /// Whether it is known that it is never copied: by its name, its metadata, or because its type was seen.
    pub(crate) fn is_excluded(&self) -> bool {
        self.is_reserved() || self.kind == SourceKind::Secret && self.slot.is_excluded()
    }

    /// The way that a copy of it has come: itself, and where it came from, nearest first.
    pub(crate) fn way(&self) -> String {
        let itself = format!("{}/{}", self.namespace, self.name);
        match self.way.as_ref().filter(|_| self.is_copy) {
            Some(earlier) => format!("{itself},{earlier}"),
            None => itself,
        }
    }

    /// Whether a copy in this namespace would lead back to where it came from.
    pub(crate) fn has_come_through(&self, namespace: &str) -> bool {
        self.way().split(',').any(|place| {
            place
                .split_once('/')
                .is_some_and(|(found, name)| found == namespace && name == &*self.name)
        })
    }
}

/// Types of Secrets that belong to one cluster, one account or one tool, and are never copied.
pub(crate) fn is_excluded_type(secret_type: &str) -> bool {
    matches!(
        secret_type,
        "kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token" | "helm.sh/release.v1"
    )
}

/// One place for the content of each source, however many rooms it is in.
#[derive(Default)]
pub(crate) struct Slots(std::collections::HashMap<Uid, Weak<Slot>>);

impl Slots {
    fn of(&mut self, uid: &str) -> Arc<Slot> {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, slot| slot.strong_count() > 0);
        }
        let known = self.0.entry(Uid::from(uid)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let slot = Arc::new(Slot::default());
            *known = Arc::downgrade(&slot);
            slot
        })
    }
}
