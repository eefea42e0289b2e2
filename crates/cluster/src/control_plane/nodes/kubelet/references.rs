//! The objects that a pod needs before its containers start: ConfigMaps, Secrets and claims.
//!
//! A missing one keeps the pod waiting, with the reasons and messages of a kubelet: `FailedMount` for a volume,
//! `CreateContainerConfigError` for an environment variable.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, KeyToPath, PersistentVolumeClaim, Pod, Secret, Volume,
};
use kube::{Api, Client};
use windlass_runtime::Error;

use crate::control_plane::pod_claims::{claims_of, is_bound};

/// The prefix of the volume that admission adds to every pod with a service account. Its ConfigMap belongs to the
/// namespace, and no pod of a simulated node reads it.
const API_ACCESS_VOLUME: &str = "kube-api-access-";

/// What a pod needs.
#[derive(Default)]
pub(super) struct References {
    namespace: String,
    volumes: Vec<VolumeSource>,
    /// By the index of the container, init containers first.
    environments: Vec<Vec<DataSource>>,
}

enum VolumeSource {
    Data { volume: String, data: DataSource },
    Claim { volume: String, claim: String },
}

/// A ConfigMap or Secret that must exist, with these keys.
struct DataSource {
    kind: DataKind,
    name: String,
    keys: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum DataKind {
    ConfigMap,
    Secret,
}

impl References {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let mut volumes = Vec::new();
        for volume in spec.volumes.iter().flatten() {
            let sources = volume_data(volume).into_iter();
            volumes.extend(sources.map(|data| VolumeSource::Data {
                volume: volume.name.clone(),
                data,
            }));
        }
        volumes.extend(claims_of(pod).map(|claim| VolumeSource::Claim {
            volume: claim.volume.to_owned(),
            claim: claim.name,
        }));
        let init = spec.init_containers.iter().flatten();
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            volumes,
            environments: init.chain(&spec.containers).map(environment).collect(),
        }
    }

    pub(super) fn has_volumes(&self) -> bool {
        !self.volumes.is_empty()
    }

    pub(super) fn has_environment(&self) -> bool {
        self.environments.iter().any(|sources| !sources.is_empty())
    }

    /// Returns why a volume cannot be mounted, in a kubelet's words.
    pub(super) async fn mount_error(&self, client: &Client) -> Result<Option<String>, Error> {
        let mut known = KnownData::new(client, &self.namespace);
        for source in &self.volumes {
            let error = match source {
                VolumeSource::Data { volume, data } => known
                    .volume_error(data)
                    .await?
                    .map(|why| format!("MountVolume.SetUp failed for volume {volume:?} : {why}")),
                VolumeSource::Claim { volume, claim } => {
                    self.claim_error(client, claim).await?.map(|why| {
                        format!(
                            "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], \
                             failed to process volumes=[{volume}]: error processing PVC {}/{claim}: {why}",
                            self.namespace
                        )
                    })
                }
            };
            if error.is_some() {
                return Ok(error);
            }
        }
        Ok(None)
    }

    async fn claim_error(&self, client: &Client, name: &str) -> Result<Option<String>, Error> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &self.namespace);
        Ok(match claims.get_opt(name).await? {
            None => Some(format!(
                "failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
            )),
            Some(claim) if claim.metadata.deletion_timestamp.is_some() => Some(format!(
                "can't start pod because PVC {}/{name} is being deleted",
                self.namespace
            )),
            Some(claim) => (!is_bound(&claim)).then(|| "PVC is not bound".to_owned()),
        })
    }

    /// Returns why each container cannot be created, in a kubelet's words.
    pub(super) async fn config_errors(&self, client: &Client) -> Result<Vec<Option<String>>, Error> {
        let mut known = KnownData::new(client, &self.namespace);
        let mut errors = Vec::with_capacity(self.environments.len());
        for sources in &self.environments {
            let mut error = None;
            for source in sources {
                error = known.environment_error(source).await?;
                if error.is_some() {
                    break;
                }
            }
            errors.push(error);
        }
        Ok(errors)
    }
}

/// The ConfigMaps and Secrets that a volume needs. Optional ones do not count.
fn volume_data(volume: &Volume) -> Vec<DataSource> {
    if volume.name.starts_with(API_ACCESS_VOLUME) {
        return Vec::new();
    }
    let mut sources = Vec::new();
    let mut add = |kind, name: Option<&String>, optional: Option<bool>, items: Option<&Vec<KeyToPath>>| {
        if let Some(name) = name.filter(|_| optional != Some(true)) {
            sources.push(DataSource {
                kind,
                name: name.clone(),
                keys: items.into_iter().flatten().map(|item| item.key.clone()).collect(),
            });
        }
    };
    if let Some(map) = &volume.config_map {
        add(
            DataKind::ConfigMap,
            Some(&map.name),
            map.optional,
            map.items.as_ref(),
        );
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_ref();
        add(DataKind::Secret, name, secret.optional, secret.items.as_ref());
    }
    let projected = volume
        .projected
        .as_ref()
        .and_then(|volume| volume.sources.as_ref());
    for source in projected.into_iter().flatten() {
        if let Some(map) = &source.config_map {
            add(
                DataKind::ConfigMap,
                Some(&map.name),
                map.optional,
                map.items.as_ref(),
            );
        }
        if let Some(secret) = &source.secret {
            add(
                DataKind::Secret,
                Some(&secret.name),
                secret.optional,
                secret.items.as_ref(),
            );
        }
    }
    sources
}

/// The ConfigMaps and Secrets that a container's environment needs. Optional ones do not count.
fn environment(container: &Container) -> Vec<DataSource> {
    let mut sources = Vec::new();
    let mut add = |kind, name: &str, optional: Option<bool>, key: Option<&String>| {
        if optional != Some(true) {
            sources.push(DataSource {
                kind,
                name: name.to_owned(),
                keys: key.into_iter().cloned().collect(),
            });
        }
    };
    for source in container.env_from.iter().flatten() {
        if let Some(map) = &source.config_map_ref {
            add(DataKind::ConfigMap, &map.name, map.optional, None);
        }
        if let Some(secret) = &source.secret_ref {
            add(DataKind::Secret, &secret.name, secret.optional, None);
        }
    }
    let values = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref());
    for value in values {
        if let Some(map) = &value.config_map_key_ref {
            add(DataKind::ConfigMap, &map.name, map.optional, Some(&map.key));
        }
        if let Some(secret) = &value.secret_key_ref {
            add(DataKind::Secret, &secret.name, secret.optional, Some(&secret.key));
        }
    }
    sources
}

/// The keys of ConfigMaps and Secrets, each read once.
struct KnownData<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// `None`: it does not exist.
    keys: HashMap<(DataKind, String), Option<BTreeSet<String>>>,
}

impl<'a> KnownData<'a> {
    fn new(client: &'a Client, namespace: &'a str) -> Self {
        Self {
            client,
            namespace,
            keys: HashMap::new(),
        }
    }

    async fn keys(&mut self, source: &DataSource) -> Result<Option<&BTreeSet<String>>, Error> {
        let key = (source.kind, source.name.clone());
        if !self.keys.contains_key(&key) {
            let found = match source.kind {
                DataKind::ConfigMap => self.get::<ConfigMap>(&source.name).await?.map(|map| {
                    let (text, binary) = (map.data.map(into_keys), map.binary_data.map(into_keys));
                    text.into_iter().chain(binary).flatten().collect()
                }),
                DataKind::Secret => self
                    .get::<Secret>(&source.name)
                    .await?
                    .map(|secret| secret.data.map(into_keys).unwrap_or_default()),
            };
            self.keys.insert(key.clone(), found);
        }
        Ok(self.keys.get(&key).and_then(Option::as_ref))
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, Error>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
        Ok(api.get_opt(name).await?)
    }

    async fn volume_error(&mut self, source: &DataSource) -> Result<Option<String>, Error> {
        let Some(keys) = self.keys(source).await? else {
            return Ok(Some(not_found(source)));
        };
        let missing = source.keys.iter().find(|key| !keys.contains(*key));
        Ok(missing.map(|key| match source.kind {
            DataKind::ConfigMap => format!("configmap references non-existent config key: {key}"),
            DataKind::Secret => format!("references non-existent secret key: {key}"),
        }))
    }

    async fn environment_error(&mut self, source: &DataSource) -> Result<Option<String>, Error> {
        let (name, namespace) = (&source.name, self.namespace);
        let Some(keys) = self.keys(source).await? else {
            return Ok(Some(not_found(source)));
        };
        let missing = source.keys.iter().find(|key| !keys.contains(*key));
        Ok(missing.map(|key| match source.kind {
            DataKind::ConfigMap => format!("couldn't find key {key} in ConfigMap {namespace}/{name}"),
            DataKind::Secret => format!("couldn't find key {key} in Secret {namespace}/{name}"),
        }))
    }
}

fn into_keys<V>(map: BTreeMap<String, V>) -> BTreeSet<String> {
    map.into_keys().collect()
}

fn not_found(source: &DataSource) -> String {
    let kind = match source.kind {
        DataKind::ConfigMap => "configmap",
        DataKind::Secret => "secret",
    };
    format!("{kind} {:?} not found", source.name)
}
