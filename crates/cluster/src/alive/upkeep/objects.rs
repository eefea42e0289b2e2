//! Objects of any kind, of which only the metadata matter.
//!
//! kube's types read all of an answer, and `serde_json` refuses what nests deeper than 128 levels: one such object could
//! not be collected, and its namespace never emptied. Here an answer is read as far as it is needed, without recursion over
//! the rest; `managedFields` nest as deep as the object does.

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

/// The objects of a kind, in one namespace or in all.
pub(super) struct Objects {
    client: Client,
    request: Request,
}

impl Objects {
    /// `url` is where the objects are.
    pub(super) fn new(client: &Client, url: String) -> Self {
        Self {
            client: client.clone(),
            request: Request::new(url),
        }
    }

    /// An object's metadata; `None` if there is no such object.
    pub(super) async fn get(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let request = self.request.get_metadata(name, &GetParams::default());
        match self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await
        {
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            answer => read::<Item>(&answer?).map(|item| Some(item.metadata)),
        }
    }

    /// The metadata of all objects.
    pub(super) async fn list(&self) -> Result<Vec<ObjectMeta>, Error> {
        let request = self.request.list_metadata(&ListParams::default());
        let answer = self
            .client
            .request_text(request.map_err(Error::BuildRequest)?)
            .await?;
        let list: List = read(&answer)?;
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

fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::SerdeError)
}

#[derive(Deserialize)]
struct List {
    /// Null where there are none.
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
    fn metadata_are_read_however_deep_the_rest_is() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let item = format!(
            r#"{{"spec":{deep},"metadata":{{"name":"a","managedFields":{deep},"finalizers":["f"]}},"x":{deep}}}"#
        );
        let list: List = read(&format!(r#"{{"kind":"L","items":[{item},{item}]}}"#)).expect("a list");
        let Some([first, _]) = list.items.as_deref() else {
            panic!("two items");
        };
        assert_eq!(first.metadata.name.as_deref(), Some("a"));
        assert_eq!(first.metadata.finalizers.as_deref(), Some(&["f".to_owned()][..]));
    }
}
