//! The kind `SecretSync`, and the names under which things are marked.

use windlass::{
    k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
    schemars::{Schema, SchemaGenerator},
};

/// The API group, and the domain of every mark.
pub const GROUP: &str = "secretsync.windlass.dev";

/// The annotation on sources, and the annotation or label on namespaces, if nobody names another.
pub const SYNC: &str = "secretsync.windlass.dev/sync";

/// The namespace whose annotated objects are copied, if nobody names another.
pub const SOURCE_NAMESPACE: &str = "secretsync";

/// The label of a copy: the UID of its source. What has no such label is not ours.
pub const SOURCE_UID: &str = "secretsync.windlass.dev/source-uid";

/// On a copy: where it came from, as `namespace/name`; with chaining, the way that it came, nearest first.
pub const SOURCE: &str = "secretsync.windlass.dev/source";

/// On a copy: which sync wrote it; see [`SyncId`](crate::SyncId).
pub const SYNCED_BY: &str = "secretsync.windlass.dev/synced-by";

/// On a copy: the hash of what was written.
pub const HASH: &str = "secretsync.windlass.dev/hash";

/// On a namespace (annotation or label) or on an object that is in the way: the source namespaces whose syncs may adopt it.
pub const ADOPT: &str = "secretsync.windlass.dev/adopt";

/// On a copy that existed before it became one. It is released when it is not wanted any more, never deleted.
pub const ADOPTED: &str = "secretsync.windlass.dev/adopted";

/// On a copy that stays when its sync goes: `Orphan`.
pub const DELETION_POLICY: &str = "secretsync.windlass.dev/deletion-policy";

/// The finalizer of a SecretSync.
pub const FINALIZER: &str = "secretsync.windlass.dev/cleanup";

/// How many entries `names` may have.
pub const MAX_NAMES: usize = 1000;

/// How many entries any other list of a SecretSync may have: patterns, labels and requirements of a selector, their values.
pub const MAX_ENTRIES: usize = 100;

/// How long a name of an object may be.
pub const MAX_NAME_LENGTH: usize = 253;

/// How long a pattern may be: as long as the name of a label, with its domain.
pub const MAX_PATTERN_LENGTH: usize = 317;

/// Copies Secrets or ConfigMaps of its namespace into the namespaces that it selects and that consent.
#[windlass::resource(group = "secretsync.windlass.dev", version = "v1alpha1")]
#[kube(
    kind = "SecretSync",
    namespaced,
    status = "SecretSyncStatus",
    shortname = "ssync",
    derive = "Default",
    derive = "PartialEq"
)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Sources", "type": "integer", "jsonPath": ".status.matched"}"#)]
#[kube(printcolumn = r#"{"name": "Targets", "type": "integer", "jsonPath": ".status.targets"}"#)]
#[kube(printcolumn = r#"{"name": "Synced", "type": "integer", "jsonPath": ".status.synced"}"#)]
#[kube(printcolumn = r#"{"name": "Failed", "type": "integer", "jsonPath": ".status.failed"}"#)]
#[kube(printcolumn = r#"{"name": "Conflicts", "type": "integer", "jsonPath": ".status.conflicts"}"#)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[derive(Default)]
#[serde(default)]
pub struct SecretSyncSpec {
    /// What is copied: Secrets or ConfigMaps.
    pub kind: SourceKind,
    /// Which objects of this namespace are copied, by label. An empty selector is all of them; left out, only `names`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub secret_selector: Option<LabelSelector>,
    /// Objects of this namespace that are copied whatever labels they have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NAMES), inner(length(max = MAX_NAME_LENGTH)))]
    pub names: Vec<String>,
    /// Into which namespaces, of those that consent. Left out: all that consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which keys of the data are copied.
    pub keys: Filter,
    /// Which labels and annotations of the source are copied.
    pub metadata: MetadataPolicy,
    /// What happens to an object of the same name that is there already and is nobody's copy. Anything but `Never` also needs
    /// the target's consent, by the annotation `secretsync.windlass.dev/adopt`.
    pub adoption_policy: AdoptionPolicy,
    /// What happens to the copies when the SecretSync goes.
    pub deletion_policy: DeletionPolicy,
    /// Whether a copy may be deleted and created anew when it cannot be changed: because it is immutable, or its type differs.
    /// Never done to an adopted object.
    pub recreate: Recreate,
    /// Whether what is a copy itself may be copied on.
    pub allow_chaining: bool,
    /// Nothing is written or deleted while this is true.
    pub paused: bool,
}

/// The schema of a label selector, with limits: each requirement is compared with each object.
fn selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Option<LabelSelector>>();
    for (pointer, limit) in [
        ("/properties/matchLabels", "maxProperties"),
        ("/properties/matchExpressions", "maxItems"),
        ("/properties/matchExpressions/items/properties/values", "maxItems"),
    ] {
        let limited = schema.pointer_mut(pointer).and_then(|part| part.as_object_mut());
        let limited = limited.expect("a label selector has it");
        limited.insert(limit.to_owned(), MAX_ENTRIES.into());
    }
    schema
}

/// A kind that can be copied.
#[windlass::part]
#[derive(Copy, Default, Eq, Hash, PartialOrd, Ord)]
pub enum SourceKind {
    /// Secrets.
    #[serde(rename = "Secret")]
    #[default]
    Secret,
    /// ConfigMaps.
    #[serde(rename = "ConfigMap")]
    ConfigMap,
}

/// Which names count. A pattern is a name, or a beginning followed by `*`.
#[windlass::part]
#[derive(Default, Eq)]
#[serde(default)]
pub struct Filter {
    /// Only these. Empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES), inner(length(max = MAX_PATTERN_LENGTH)))]
    pub include: Vec<String>,
    /// Never these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENTRIES), inner(length(max = MAX_PATTERN_LENGTH)))]
    pub exclude: Vec<String>,
}

/// Which labels and annotations of a source its copies have. What deployment tools track their objects by is never copied
/// unless it is named in `include`; what is ours never is.
#[windlass::part]
#[derive(Default, Eq)]
#[serde(default)]
pub struct MetadataPolicy {
    /// Which labels.
    pub labels: Filter,
    /// Which annotations.
    pub annotations: Filter,
}

/// What happens to an object that is in the way.
#[windlass::part]
#[derive(Copy, Default, Eq)]
pub enum AdoptionPolicy {
    /// It stays as it is, and the conflict is reported.
    #[serde(rename = "Never")]
    #[default]
    Never,
    /// It becomes a copy if its type and data are already the same, and the object itself consents to the comparison.
    #[serde(rename = "IfIdentical")]
    IfIdentical,
    /// It becomes a copy, whatever it holds, if the object or its namespace consents.
    #[serde(rename = "Always")]
    Always,
}

/// What happens to copies when their sync goes.
#[windlass::part]
#[derive(Copy, Default, Eq)]
pub enum DeletionPolicy {
    /// They are deleted.
    #[serde(rename = "Delete")]
    #[default]
    Delete,
    /// They stay, without our marks.
    #[serde(rename = "Orphan")]
    Orphan,
}

/// Whether a copy may be deleted and created anew.
#[windlass::part]
#[derive(Copy, Default, Eq)]
pub enum Recreate {
    /// What cannot be changed stays, and is reported.
    #[serde(rename = "Never")]
    #[default]
    Never,
    /// When it cannot be changed.
    #[serde(rename = "IfNeeded")]
    IfNeeded,
}

/// How far it is.
#[windlass::part]
#[derive(Default)]
#[serde(default)]
pub struct SecretSyncStatus {
    /// The generation that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many sources there are.
    pub matched: u32,
    /// How many objects were selected by label and are of a type that is never copied.
    pub excluded: u32,
    /// Into how many namespaces they are copied.
    pub namespaces: u32,
    /// How many copies there should be.
    pub targets: u32,
    /// How many of them are as they should be.
    pub synced: u32,
    /// How many could not be written.
    pub failed: u32,
    /// How many are somebody else's.
    pub conflicts: u32,
    /// What went wrong, at most ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<SyncFailure>,
    /// `Ready` and `Conflict`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One thing that went wrong. Never holds a value.
#[windlass::part]
#[derive(Default, Eq)]
#[serde(default)]
pub struct SyncFailure {
    /// The target namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
}
