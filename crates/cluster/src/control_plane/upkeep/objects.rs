//! Metadata-only access to objects of any kind.
//!
//! kube's types parse whole responses, and `serde_json` rejects JSON that nests deeper than 128 levels: such an object
//! could not be garbage collected, nor its namespace deleted. This client skips everything but the metadata without
//! recursion, including `managedFields`, which nest as deep as the object.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client, Error,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams},
    core::Request,
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// A client for the objects of one kind, in one namespace or in all.
pub(super) struct MetadataApi {
    client: Client,
    request: Request,
}

impl MetadataApi {
    /// `url` is the path of the collection.
    pub(super) fn new(client: &Client, url: String) -> Self {
        Self {
            client: client.clone(),
            request: Request::new(url),
        }
    }

    /// Returns an object's metadata, or `None` if it does not exist.
    pub(super) async fn get(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let request = self.request.get_metadata(name, &GetParams::default());
        match self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await
        {
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            answer => parse::<Item>(&answer?).map(|item| Some(item.metadata)),
        }
    }

    /// Returns the metadata of all objects.
    pub(super) async fn list(&self) -> Result<Vec<ObjectMeta>, Error> {
        let request = self.request.list_metadata(&ListParams::default());
        let answer = self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await?;
        let list: List = parse(&answer)?;
        Ok(list
            .items
            .into_iter()
            .flatten()
            .map(|item| item.metadata)
            .collect())
    }

    pub(super) async fn patch(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<Value>,
    ) -> Result<(), Error> {
        let request = self.request.patch_metadata(name, params, patch);
        let answer = self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await;
        answer.map(drop)
    }

    pub(super) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<(), Error> {
        let request = self.request.delete(name, params);
        let answer = self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await;
        answer.map(drop)
    }

    pub(super) async fn delete_all(&self, params: &DeleteParams) -> Result<(), Error> {
        let request = self.request.delete_collection(params, &ListParams::default());
        let answer = self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await;
        answer.map(drop)
    }
}

fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::SerdeError)
}

#[derive(Deserialize)]
struct List {
    /// Null in an empty list.
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(deserialize_with = "without_managed_fields")]
    metadata: ObjectMeta,
}

fn without_managed_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object's metadata")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut fields = Map::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == "managedFields" {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    fields.insert(name, map.next_value()?);
                }
            }
            Ok(fields)
        }
    }
    let fields = deserializer.deserialize_map(Fields)?;
    ObjectMeta::deserialize(Value::Object(fields)).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_parses_however_deep_the_rest_nests() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let item = format!(
            r#"{{"spec":{deep},"metadata":{{"name":"a","managedFields":{deep},"finalizers":["f"]}},"x":{deep}}}"#
        );
        let list: List = parse(&format!(r#"{{"kind":"L","items":[{item},{item}]}}"#)).expect("a list");
        let Some([first, _]) = list.items.as_deref() else {
            panic!("two items");
        };
        assert_eq!(first.metadata.name.as_deref(), Some("a"));
        assert_eq!(first.metadata.finalizers.as_deref(), Some(&["f".to_owned()][..]));
    }
}
