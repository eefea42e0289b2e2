//! Helpers for attacks: objects of both kinds as JSON, and the initial cluster.

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    kube::{
        self,
        api::{DeleteParams, GetParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{SecretSync, SecretSyncStatus, api::SYNC_ANNOTATION};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::secretsync::test_cluster::{TestCluster, namespace_of};

/// The attacker's namespace, and the attacked one.
pub(crate) const MALLORY: &str = "mallory";
pub(crate) const VICTIM: &str = "victim";

/// The target's consent to an adoption.
pub(crate) const ADOPT: &str = "secretsync.windlass.dev/adopt";

/// All adoption policies.
pub(crate) const POLICIES: [&str; 3] = ["Never", "IfIdentical", "Always"];

/// The kinds that can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Secret,
    ConfigMap,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Secret, Kind::ConfigMap];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }

    pub(crate) fn object(self, name: &str, value: &str) -> Value {
        let field = match self {
            Self::Secret => "stringData",
            Self::ConfigMap => "data",
        };
        json!({ "apiVersion": "v1", "kind": self.name(), "metadata": { "name": name }, field: { "password": value } })
    }
}

/// The same object with more fields.
pub(crate) fn with(mut object: Value, more: &Value) -> Value {
    merge(&mut object, more);
    object
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// Metadata of an object that consents to its adoption from this namespace.
pub(crate) fn adopt(from: &str) -> Value {
    json!({ "metadata": { "annotations": { ADOPT: from } } })
}

/// A namespace of the attacker, and one that accepts copies from it, with this consent to adoption.
pub(crate) async fn attacked(case: &Case, adopt: Option<&str>) -> anyhow::Result<TestCluster> {
    let env = TestCluster::new(case).await?;
    env.namespace(MALLORY, json!({})).await?;
    env.namespace(VICTIM, target(MALLORY, adopt)).await?;
    Ok(env)
}

/// Metadata of a namespace that accepts copies from this one, with this consent to adoption.
pub(crate) fn target(from: &str, adopt: Option<&str>) -> Value {
    let mut annotations = json!({ SYNC_ANNOTATION: from });
    if let Some(adopt) = adopt {
        annotations[ADOPT] = adopt.into();
    }
    json!({ "annotations": annotations })
}

impl TestCluster {
    fn of_kind(kind: Kind, namespace: &str) -> kube::core::Request {
        kube::core::Request::new(format!("/api/v1/namespaces/{namespace}/{}", kind.plural()))
    }

    pub(crate) async fn make(&self, kind: Kind, namespace: &str, object: &Value) -> anyhow::Result<Value> {
        let request = Self::of_kind(kind, namespace);
        let create = request.create(&PostParams::default(), serde_json::to_vec(object)?)?;
        Ok(self.case().client().request(create).await?)
    }

    pub(crate) async fn find(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let get = Self::of_kind(kind, namespace).get(name, &GetParams::default())?;
        Ok(self.case().client().request(get).await?)
    }

    pub(crate) async fn change(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> anyhow::Result<Value> {
        let request = Self::of_kind(kind, namespace);
        let patch = request.patch(name, &PatchParams::default(), &Patch::Merge(patch))?;
        Ok(self.case().client().request(patch).await?)
    }

    pub(crate) async fn remove(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        let delete = Self::of_kind(kind, namespace).delete(name, &DeleteParams::background())?;
        self.case().client().request_text(delete).await?;
        Ok(())
    }

    /// Waits until this holds for the object.
    pub(crate) async fn wait_for_object(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        let within = self.in_namespace(namespace);
        match kind {
            Kind::Secret => {
                let holds = |object: &Secret| serde_json::to_value(object).is_ok_and(|object| holds(&object));
                within.wait_for::<Secret>(name, holds).await?;
            }
            Kind::ConfigMap => {
                let holds =
                    |object: &ConfigMap| serde_json::to_value(object).is_ok_and(|object| holds(&object));
                within.wait_for::<ConfigMap>(name, holds).await?;
            }
        }
        Ok(())
    }

    /// Creates a SecretSync of the attacker, and returns its status when everything was reconciled.
    pub(crate) async fn attack(&self, name: &str, spec: Value) -> anyhow::Result<SecretSyncStatus> {
        self.sync(MALLORY, name, spec).await?;
        self.current_status(name).await
    }

    /// Returns the status of one of the attacker's SecretSyncs for its current generation.
    pub(crate) async fn current_status(&self, name: &str) -> anyhow::Result<SecretSyncStatus> {
        self.wait_for_status(MALLORY, name, |status| status.observed_generation.is_some())
            .await?;
        self.settle().await;
        let sync = self.in_namespace(MALLORY).get::<SecretSync>(name).await?;
        assert_eq!(
            sync.status.as_ref().and_then(|status| status.observed_generation),
            sync.metadata.generation
        );
        Ok(sync.status.unwrap_or_default())
    }

    /// The updates and deletions of objects in a namespace.
    pub(crate) fn updates_and_deletions(&self, namespace: &str) -> Vec<String> {
        let writes = self.proxy().writes();
        let harmful = |write: &&RecordedRequest| {
            ["secrets", "configmaps"].contains(&write.resource())
                && namespace_of(write) == namespace
                && write.access.verb != "create"
        };
        writes.iter().filter(harmful).map(ToString::to_string).collect()
    }
}

/// Whether an object has our label or annotations.
pub(crate) fn is_marked(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let names = ["labels", "annotations"].into_iter();
    let mut names = names.flat_map(|map| metadata[map].as_object().into_iter().flatten());
    names.any(|(name, _)| {
        name.starts_with("secretsync.windlass.dev/") && name != ADOPT && name != SYNC_ANNOTATION
    })
}

/// Whether our field manager owns fields of an object.
pub(crate) fn is_managed(object: &Value) -> bool {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.is_some_and(|entries| entries.iter().any(|entry| entry["manager"] == "secretsync"))
}
