//! What is there, without what differs from run to run.

use kube::{ResourceExt, api::ListParams};
use serde_json::Value;

use crate::{Namespaced, World};

/// What a server makes up, or counts.
const PASSING: [&str; 3] = ["resourceVersion", "creationTimestamp", "managedFields"];

/// The objects of a case's namespace as two runs can be compared: by name, with uids told by whose they are, and without
/// versions and times. Generations stay: they tell how often something was changed.
#[derive(Default)]
pub struct Snapshot {
    objects: Vec<Value>,
    /// What stands for what.
    names: Vec<(String, String)>,
}

impl Snapshot {
    /// Nothing yet.
    pub fn new(world: &World) -> Self {
        let namespace = world.case().namespace().to_owned();
        Self {
            objects: Vec::new(),
            names: vec![(namespace, "<namespace>".to_owned())],
        }
    }

    /// And the objects of this kind.
    pub async fn with<K: Namespaced>(mut self, world: &World) -> anyhow::Result<Self> {
        let mut all = world.case().api::<K>().list(&ListParams::default()).await?.items;
        all.sort_by_key(ResourceExt::name_any);
        for object in all {
            let kind = K::kind(&()).into_owned();
            let name = object.name_any();
            let uid = object.uid().unwrap_or_default();
            self.names.push((uid, format!("<{kind} {name}>")));
            let mut object = serde_json::to_value(object)?;
            // Lists leave it out.
            object["kind"] = kind.into();
            self.objects.push(object);
        }
        Ok(self)
    }

    /// All of it.
    pub fn take(mut self) -> Value {
        for object in &mut self.objects {
            plain(object, &self.names);
        }
        Value::Array(self.objects)
    }
}

fn plain(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(|value| plain(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| plain(value, names)),
        Value::String(text) if text.parse::<k8s_openapi::jiff::Timestamp>().is_ok() => {
            "<time>".clone_into(text);
        }
        Value::String(text) => {
            for (name, plain) in names.iter().filter(|(name, _)| !name.is_empty()) {
                if text.contains(name.as_str()) {
                    *text = text.replace(name.as_str(), plain);
                }
            }
        }
        _ => {}
    }
}
