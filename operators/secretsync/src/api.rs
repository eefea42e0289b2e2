//! The `SecretSync` resource, and the names of labels and annotations.

use windlass::{
    k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time},
    kube::api::ObjectMeta,
    schemars::{Schema, SchemaGenerator},
};

use crate::{consent::Consent, rules::SyncRules};

/// The API group, and the prefix of all labels and annotations.
pub const GROUP: &str = "secretsync.windlass.dev";

/// Default name of the annotation on sources, and of the annotation or label on namespaces.
pub const SYNC_ANNOTATION: &str = "secretsync.windlass.dev/sync";

/// Default namespace of annotated sources.
pub const DEFAULT_SOURCE_NAMESPACE: &str = "secretsync";

/// The label on copies: the UID of the source. Objects without it are not ours.
pub const SOURCE_UID_LABEL: &str = "secretsync.windlass.dev/source-uid";

/// On a copy: its source as `namespace/name`; with chaining the whole chain, nearest first.
pub const SOURCE_ANNOTATION: &str = "secretsync.windlass.dev/source";

/// On a copy: the sync that wrote it.
pub const SYNCED_BY_ANNOTATION: &str = "secretsync.windlass.dev/synced-by";

/// A digest of the content, which would let all who can read metadata test guesses of short values. It is never
/// written, and removed from copies that have it.
pub const HASH_ANNOTATION: &str = "secretsync.windlass.dev/hash";

/// On a namespace (annotation or label) or on an existing object: the source namespaces whose syncs may adopt it.
pub const ADOPT_ANNOTATION: &str = "secretsync.windlass.dev/adopt";

/// On a copy that existed before it became one. Such an object is released when it is no longer wanted, never
/// deleted.
pub const ADOPTED_ANNOTATION: &str = "secretsync.windlass.dev/adopted";

/// On a copy that stays when its sync is deleted: `Orphan`.
pub const DELETION_POLICY_ANNOTATION: &str = "secretsync.windlass.dev/deletion-policy";

/// On a SecretSync that shows the status of an annotated source: its kind and name. The spec of such a SecretSync has no
/// effect.
pub const STATUS_OF_ANNOTATION: &str = "secretsync.windlass.dev/status-of";

/// On a SecretSync: how many of its copies may be removed at once, in answer to a status that asks for it. It is removed
/// when nothing waits for it any more.
pub const CONFIRM_REMOVAL_ANNOTATION: &str = "secretsync.windlass.dev/confirm-removal";

/// The finalizer of a SecretSync.
pub const FINALIZER: &str = "secretsync.windlass.dev/cleanup";

/// Maximum number of entries in `names`.
pub const MAX_NAMES: usize = 1000;

/// Maximum number of entries in any other list of a SecretSync: patterns, labels and requirements of a selector,
/// their values.
pub const MAX_ENTRIES: usize = 100;

/// Maximum length of an object's name.
pub const MAX_NAME_LENGTH: usize = 253;

/// Maximum length of a pattern: that of a label key with its prefix.
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
#[kube(printcolumn = r#"{"name": "Sources", "type": "integer", "jsonPath": ".status.sources"}"#)]
#[kube(printcolumn = r#"{"name": "Targets", "type": "integer", "jsonPath": ".status.targets"}"#)]
#[kube(printcolumn = r#"{"name": "Synced", "type": "integer", "jsonPath": ".status.synced"}"#)]
#[kube(printcolumn = r#"{"name": "Failed", "type": "integer", "jsonPath": ".status.failed"}"#)]
#[kube(printcolumn = r#"{"name": "Conflicts", "type": "integer", "jsonPath": ".status.conflicts"}"#)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[kube(
    printcolumn = r#"{"name": "Message", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[derive(Default)]
#[serde(default)]
pub struct SecretSyncSpec {
    /// What is copied: Secrets or ConfigMaps.
    pub kind: SourceKind,
    /// Which objects of this namespace are copied, by label. An empty selector selects all; if omitted, only `names`
    /// are copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub source_selector: Option<LabelSelector>,
    /// Objects of this namespace that are copied whatever their labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NAMES), inner(length(max = MAX_NAME_LENGTH)))]
    pub names: Vec<String>,
    /// The target namespaces, of those that consent. Default: all that consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which keys of the data are copied.
    pub keys: Filter,
    /// Which labels and annotations of the source are copied.
    pub metadata: MetadataPolicy,
    /// What happens to an existing object of the same name that is not a copy. Anything but `Never` also needs the
    /// target's consent, by the annotation `secretsync.windlass.dev/adopt`.
    pub adoption_policy: AdoptionPolicy,
    /// What happens to the copies when the SecretSync is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Whether a copy that cannot be updated, because it is immutable or of another type, may be deleted and
    /// recreated. Adopted objects are never deleted.
    pub recreate_policy: RecreatePolicy,
    /// Whether copies may be sources themselves.
    pub allow_chaining: bool,
    /// Suspends all writes and deletions.
    pub paused: bool,
}

impl SecretSyncSpec {
    /// Checks what the CRD's schema cannot, as the controller does: names, patterns and selectors. Use it to check
    /// manifests before they are applied.
    ///
    /// ```
    /// use windlass_secretsync::SecretSyncSpec;
    ///
    /// let spec = SecretSyncSpec {
    ///     names: vec!["Not a name".to_owned()],
    ///     ..SecretSyncSpec::default()
    /// };
    /// assert!(spec.validate().is_err());
    /// ```
    pub fn validate(&self) -> Result<(), String> {
        SyncRules::from_spec(self).map(drop)
    }
}

/// Checks a value of the annotation by which a namespace consents to copies, or to their adoption, as the controller does
/// without knowing which namespaces exist. The error says which values are valid.
///
/// ```
/// use windlass_secretsync::api::check_consent;
///
/// assert!(check_consent("shop,tools").is_ok());
/// assert!(check_consent("no").is_err(), "only `false` withdraws the consent");
/// ```
pub fn check_consent(value: &str) -> Result<(), String> {
    let name = "consent";
    let namespace = ObjectMeta {
        annotations: Some([(name.to_owned(), value.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let mistake = Consent::from_metadata(&namespace, name).mistake(name, |_| true);
    mistake.map_or(Ok(()), Err)
}

/// The schema of a label selector, with limits: each requirement is compared with each object.
fn selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = windlass::schemas::label_selector(generator);
    schema.insert("nullable".to_owned(), true.into());
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
#[windlass::api_type]
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

/// Selects names. A pattern is a name, or a prefix followed by `*`.
#[windlass::api_type]
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

/// Which labels and annotations of a source are copied. Those that deployment tools use to track their objects are
/// copied only if they are listed in `include`; those of secretsync never are.
#[windlass::api_type]
#[derive(Default, Eq)]
#[serde(default)]
pub struct MetadataPolicy {
    /// Which labels.
    pub labels: Filter,
    /// Which annotations.
    pub annotations: Filter,
}

/// What happens to an existing object of the same name.
#[windlass::api_type]
#[derive(Copy, Default, Eq)]
pub enum AdoptionPolicy {
    /// It is left unchanged, and the conflict is reported.
    #[serde(rename = "Never")]
    #[default]
    Never,
    /// It becomes a copy if its type and data are identical, and the object itself consents to the comparison.
    #[serde(rename = "IfIdentical")]
    IfIdentical,
    /// It becomes a copy, whatever it contains, if the object or its namespace consents.
    #[serde(rename = "Always")]
    Always,
}

/// What happens to copies when their sync is deleted.
#[windlass::api_type]
#[derive(Copy, Default, Eq)]
pub enum DeletionPolicy {
    /// They are deleted.
    #[serde(rename = "Delete")]
    #[default]
    Delete,
    /// They stay, without the labels and annotations of secretsync.
    #[serde(rename = "Orphan")]
    Orphan,
}

/// Whether a copy may be deleted and recreated.
#[windlass::api_type]
#[derive(Copy, Default, Eq)]
pub enum RecreatePolicy {
    /// A copy that cannot be updated stays, and is reported.
    #[serde(rename = "Never")]
    #[default]
    Never,
    /// If it cannot be updated.
    #[serde(rename = "IfNeeded")]
    IfNeeded,
}

/// Observed state of a SecretSync.
#[windlass::api_type]
#[derive(Default)]
#[serde(default)]
pub struct SecretSyncStatus {
    /// The generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of sources.
    pub sources: u32,
    /// Number of objects that were selected by label but are never copied.
    pub excluded: u32,
    /// Number of target namespaces.
    pub namespaces: u32,
    /// Number of desired copies.
    pub targets: u32,
    /// Number of copies that are up to date.
    pub synced: u32,
    /// Number of copies that could not be written.
    pub failed: u32,
    /// Number of targets where an object that is not this sync's copy exists.
    pub conflicts: u32,
    /// What failed; at most ten entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<SyncFailure>,
    /// The annotation by which the target namespaces consented (`--annotation`). A namespace without another one has not
    /// withdrawn its consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent_annotation: Option<String>,
    /// Copies that were removed lately and count together, so that a restart does not forget them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_removals: Option<RecentRemovals>,
    /// `Ready` and `Conflict`; and `RemovalHeld` while a removal waits for a confirmation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "windlass::schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// Copies that were removed because they were no longer wanted.
#[windlass::api_type]
pub struct RecentRemovals {
    /// How many.
    pub count: u32,
    /// Since when.
    #[schemars(schema_with = "windlass::schemas::time")]
    pub since: Time,
    /// Removals that have begun; written before the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<PlannedRemovals>,
}

/// Copies that are being removed.
#[windlass::api_type]
#[derive(Copy, Eq)]
pub struct PlannedRemovals {
    /// What `count` will be.
    pub count: u32,
    /// How many copies stay.
    pub wanted: u32,
}

/// One failure. Never contains a value.
#[windlass::api_type]
#[derive(Default, Eq)]
#[serde(default)]
pub struct SyncFailure {
    /// The target namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Reason, in CamelCase.
    pub reason: String,
    /// Message for humans.
    pub message: String,
}
