//! Which fields the status of a type has, from its `Deserialize` implementation alone: there may be no object of it yet.

use std::cell::Cell;

use serde::{
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor,
        value::{Error, StrDeserializer},
    },
    forward_to_deserialize_any,
};

/// Returns the names of the fields of `status`, as in JSON. Empty if the type has no status, or does not tell, such as a
/// `DynamicObject`.
pub(crate) fn status_fields<K: DeserializeOwned>() -> &'static [&'static str] {
    let found = Cell::new(&[] as &'static [&'static str]);
    let probe = Probe {
        found: &found,
        is_status: false,
    };
    // It always fails: there are no values.
    let _ = K::deserialize(probe);
    found.get()
}

/// Deserializes an object whose only field is `status`, down to the names of the fields of that.
struct Probe<'a> {
    found: &'a Cell<&'static [&'static str]>,
    is_status: bool,
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.is_status {
            self.found.set(fields);
            return Err(Error::custom("there is no value"));
        }
        visitor.visit_map(StatusOnly {
            found: self.found,
            is_next: true,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

struct StatusOnly<'a> {
    found: &'a Cell<&'static [&'static str]>,
    is_next: bool,
}

impl<'de> MapAccess<'de> for StatusOnly<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if !std::mem::take(&mut self.is_next) {
            return Ok(None);
        }
        let name: StrDeserializer<'_, Error> = "status".into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Probe {
            found: self.found,
            is_status: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        core::v1::{ConfigMap, Namespace},
        policy::v1::PodDisruptionBudget,
    };
    use kube::core::DynamicObject;
    use serde::Deserialize;

    use super::*;

    /// As kube's derive makes it: the status is optional, the spec has required fields.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only deserialized")]
    struct Shop {
        spec: Vec<u8>,
        status: Option<ShopStatus>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only deserialized")]
    struct ShopStatus {
        observed_generation: i64,
        conditions: Vec<u8>,
    }

    #[test]
    fn fields_of_the_status_are_found_without_an_object() {
        assert_eq!(status_fields::<Shop>(), ["observedGeneration", "conditions"]);
        assert_eq!(status_fields::<Namespace>(), ["conditions", "phase"]);
        assert!(status_fields::<PodDisruptionBudget>().contains(&"conditions"));
        assert_eq!(status_fields::<ConfigMap>(), [""; 0]);
        assert_eq!(status_fields::<DynamicObject>(), [""; 0]);
    }
}
