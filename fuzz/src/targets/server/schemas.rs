//! CustomResourceDefinitions and their objects. An input is a JSON list of a definition and an object.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{readable::StoredObject, seeds, test_server::TestServer};
use crate::{
    engine::{Outcome, Target},
    invariants::{Meter, Violation},
    mutate::{bytes, dictionary, tree},
};

pub(super) struct Schemas(TestServer);

impl Schemas {
    pub(super) fn new() -> Self {
        Self(TestServer::new())
    }
}

impl Target for Schemas {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let pairs = seeds::definitions().into_iter();
        pairs
            .map(|(definition, object)| json!([definition, object]).to_string().into_bytes())
            .collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let Ok(Value::Array(mut parts)) = serde_json::from_slice(input) else {
            return bytes::mutate(input, donor, rng);
        };
        let donor: Value = serde_json::from_slice(donor).unwrap_or_default();
        // Mutate the schema and the objects more often than the rest of a definition.
        let node = match rng.u8(..8) {
            0 => parts.first_mut(),
            1..5 => parts
                .first_mut()
                .and_then(|definition| definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")),
            _ => parts.get_mut(1),
        };
        if let Some(node) = node {
            if donor.is_null() {
                tree::mutate(node, &dictionary::value(rng), rng);
            } else {
                tree::mutate(node, &donor, rng);
            }
        }
        tree::text(&parts.into(), rng).into_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.0.next_input();
        let result = run_one(&self.0, input);
        if result.is_err() {
            self.0.reset();
        }
        result
    }
}

fn run_one(server: &TestServer, input: &[u8]) -> Result<Outcome, Violation> {
    let Ok(Value::Array(parts)) = serde_json::from_slice::<Value>(input) else {
        return Ok(Outcome::default());
    };
    let definition = parts.first().unwrap_or(&Value::Null);
    let meter = Meter::start();
    let response = server.send("POST", seeds::DEFINITIONS, &[], definition.to_string().into());
    let mut outcome = Outcome {
        accepted: response.is_success(),
        fingerprint: response.digest(),
        allocated: meter.check(input.len())?,
    };
    response.check()?;
    if !response.is_success() {
        return Ok(outcome);
    }
    let stored = response.json();
    let name = stored["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let definition = StoredObject::new(server, seeds::DEFINITIONS, &name);
    // Such a rule may reject the object that it accepted as a new one.
    let has_transition_rules = stored.to_string().contains("oldSelf");
    definition.check()?;
    if has_invalid_ca_bundle(
        &server
            .get(&format!("{}/{name}", seeds::DEFINITIONS), "application/json")
            .json(),
    ) {
        // A real server, too, answers every request for its objects with an internal error.
        definition.delete()?;
        return Ok(outcome);
    }
    for version in stored["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .take(3)
    {
        if version["served"] != true {
            continue;
        }
        let is_stored = version["storage"] == true;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, version) = (text(&stored["spec"]["group"]), text(&version["name"]));
        let plural = text(&stored["spec"]["names"]["plural"]);
        let collection = if stored["spec"]["scope"] == "Namespaced" {
            format!("/apis/{group}/{version}/namespaces/default/{plural}")
        } else {
            format!("/apis/{group}/{version}/{plural}")
        };
        let mut object = parts.get(1).cloned().unwrap_or_default();
        if object.is_object() {
            object["apiVersion"] = format!("{group}/{version}").into();
            object["kind"] = stored["spec"]["names"]["kind"].clone();
            if !object["metadata"].is_object() {
                object["metadata"] = json!({});
            }
            object["metadata"]["name"] = seeds::NAME.into();
        }
        let meter = Meter::start();
        let response = server.send("POST", &collection, &[], object.to_string().into());
        meter.check(input.len())?;
        response.check()?;
        outcome.fingerprint = format!("{} {}", outcome.fingerprint, response.digest());
        if response.is_success() {
            // A version other than the storage version may have fields that conversion drops; then every update changes
            // the object, on a real server too. It can still be read and deleted.
            let object = StoredObject::new(server, &collection, seeds::NAME);
            if is_stored && !has_transition_rules {
                object.check()?;
            } else {
                object.check_reads()?;
            }
            object.delete()?;
        }
    }
    definition.delete()?;
    Ok(outcome)
}

fn has_invalid_ca_bundle(definition: &Value) -> bool {
    let mut conditions = definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["reason"] == "InvalidCABundle")
}
