//! Checks that an accepted object can be read in every representation and encoding, by lists and watches, written back
//! without a change, and deleted.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::test_server::{Response, TestServer};
use crate::invariants::{Invariant, Violation};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// A real server's error for applying to an object that has, in a list of type map, an element without its key: such an
/// object can be created, but its fields cannot be assigned to managers.
const MANAGER_ERROR: &str = "failed to create manager for existing fields";

/// Fields for which a real server, too, rejects an unchanged update: it validates them on update but not on create.
const KNOWN_UPDATE_ERRORS: &[&str] = &[
    // ValidateNodeUpdate checks for duplicate addresses, ValidateNode does not.
    "status.addresses",
];

/// Kinds that an unchanged update may change, on a real server too: both take labels from their template if they have
/// none.
const CHANGED_BY_UNCHANGED_UPDATE: [&str; 2] = ["jobs", "replicationcontrollers"];

/// An object in the server.
pub(super) struct StoredObject<'a> {
    server: &'a TestServer,
    /// `/api/v1/namespaces/default/configmaps`
    collection: &'a str,
    name: &'a str,
}

impl<'a> StoredObject<'a> {
    pub(super) fn new(server: &'a TestServer, collection: &'a str, name: &'a str) -> Self {
        Self {
            server,
            collection,
            name,
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, self.escaped())
    }

    /// Returns the name escaped for a URL: role names may contain any character.
    fn escaped(&self) -> impl std::fmt::Display {
        utf8_percent_encode(self.name, NON_ALPHANUMERIC)
    }

    /// Returns the name escaped as a value of a field selector.
    fn escaped_for_selector(&self) -> String {
        let mut value = self.name.replace('\\', "\\\\");
        for special in [",", "="] {
            value = value.replace(special, &format!("\\{special}"));
        }
        utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string()
    }

    /// Whether the object exists.
    pub(super) fn exists(&self) -> bool {
        self.server.get(&self.path(), JSON).code != 404
    }

    /// Checks reads and writes. The object stays unchanged.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.check_reads()?;
        let plural = self.collection.rsplit('/').next().unwrap_or_default();
        if CHANGED_BY_UNCHANGED_UPDATE.contains(&plural) {
            let object = self.get(&self.path(), JSON)?.body;
            self.server.send("PUT", &self.path(), &[], object).check()?;
        }
        self.check_writes()
    }

    /// Reads the object in every representation and compares the results.
    pub(super) fn check_reads(&self) -> Result<(), Violation> {
        let path = self.path();
        let object = self.get(&path, JSON)?;
        self.get(&path, YAML)?;
        let table = self.get(&path, TABLE)?;
        let metadata = self.get(&path, METADATA)?;
        let selected = format!(
            "{}?fieldSelector=metadata.name%3D{}",
            self.collection,
            self.escaped_for_selector()
        );
        let list = self.get(&selected, JSON)?;
        self.get(&selected, TABLE)?;
        if object.is_deep() {
            return Ok(());
        }
        let object = object.json();
        let Some(version) = version(&object) else {
            return Err(violated("GET", &path, &object.to_string()));
        };
        if table.json()["rows"].as_array().map(Vec::len) != Some(1) {
            return Err(violated("GET as a Table", &path, &table.text()));
        }
        if without_hidden_annotations(&metadata.json()["metadata"])
            != without_hidden_annotations(&object["metadata"])
        {
            let detail = format!("{}, and the object is {object}", metadata.text());
            return Err(violated("GET as PartialObjectMetadata", &path, &detail));
        }
        let listed = &list.json()["items"][0];
        if ["metadata", "spec", "status", "data"]
            .iter()
            .any(|part| listed.get(part) != object.get(part))
        {
            return Err(violated("LIST", &selected, &list.text()));
        }
        self.check_watch(&selected, version, &object)
    }

    /// Writes the object back as it was read, and checks that nothing changes.
    fn check_writes(&self) -> Result<(), Violation> {
        let path = self.path();
        let object = self.get(&path, JSON)?;
        if object.is_deep() {
            return Ok(());
        }
        let (json, object) = (object.body.clone(), object.json());
        let version = version(&object).unwrap_or_default();
        let yaml = self.get(&path, YAML)?.body;
        self.put_unchanged("PUT as JSON", &path, JSON, json, version)?;
        self.put_unchanged("PUT as YAML", &path, YAML, yaml, version)?;
        let minimal = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": self.name},
        });
        let apply = format!("{path}?fieldManager=fuzz-again&force=true");
        // The first apply may migrate or drop old managed fields; later ones must change nothing.
        let mut last = version;
        for _ in 0..3 {
            let body = minimal.to_string().into_bytes();
            let applied = self
                .server
                .send("PATCH", &apply, &[("content-type", APPLY)], body);
            applied.check()?;
            if is_known_update_error(&applied) || applied.text().contains(MANAGER_ERROR) {
                return Ok(());
            }
            let Some(version) = self::version(&applied.json()).filter(|_| applied.is_success()) else {
                return Err(violated("apply", &path, &applied.text()));
            };
            if std::mem::replace(&mut last, version) == version {
                return Ok(());
            }
        }
        Err(violated(
            "apply",
            &path,
            "each of three applies changes the object",
        ))
    }

    /// Checks that a watch returns the event of the last write.
    fn check_watch(&self, selected: &str, version: u64, object: &Value) -> Result<(), Violation> {
        let before = version.saturating_sub(1);
        let target = format!("{selected}&watch=true&timeoutSeconds=1&resourceVersion={before}");
        let response = self.get(&target, JSON)?;
        let event: Value = serde_json::Deserializer::from_slice(&response.body)
            .into_iter()
            .next()
            .and_then(Result::ok)
            .unwrap_or_default();
        if event["object"] != *object {
            return Err(violated("watch", &target, &response.text()));
        }
        Ok(())
    }

    fn get(&self, target: &str, accept: &str) -> Result<Response, Violation> {
        let response = self.server.get(target, accept);
        response.check()?;
        if response.code == 200 {
            Ok(response)
        } else {
            Err(violated(&format!("GET as {accept}"), target, &response.text()))
        }
    }

    /// Puts an object that must not change.
    fn put_unchanged(
        &self,
        what: &str,
        target: &str,
        content_type: &str,
        body: Vec<u8>,
        version: u64,
    ) -> Result<(), Violation> {
        let sent = String::from_utf8_lossy(&body).into_owned();
        let response = self
            .server
            .send("PUT", target, &[("content-type", content_type)], body);
        response.check()?;
        let now = self::version(&response.json());
        if response.code == 200 && now == Some(version) {
            return Ok(());
        }
        if is_known_update_error(&response) {
            return Ok(());
        }
        let detail = format!("{}\n{}\nrequest body: {sent}", response.code, response.text());
        Err(violated(what, target, &detail))
    }

    /// Deletes the object, removing finalizers, and checks that it is gone.
    pub(super) fn delete(&self) -> Result<(), Violation> {
        let path = self.path();
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let deleted = self.server.send("DELETE", &path, &[], options.to_string().into());
        deleted.check()?;
        if deleted.code == 404 {
            return Ok(());
        }
        if !deleted.is_success() {
            return Err(violated("DELETE", &path, &deleted.text()));
        }
        if self.exists() {
            let without = json!({"metadata": {"finalizers": null}});
            if self.collection.ends_with("/namespaces") {
                let namespace = json!({"metadata": {"name": self.name}, "spec": {"finalizers": []}});
                let body = namespace.to_string().into_bytes();
                self.server.send("PUT", &format!("{path}/finalize"), &[], body);
            }
            let body = without.to_string().into_bytes();
            self.server.send("PATCH", &path, &[("content-type", MERGE)], body);
        }
        let left = self.server.get(&path, JSON);
        if left.code == 404 {
            Ok(())
        } else {
            Err(violated(
                "DELETE",
                &path,
                &format!("the object still exists: {}", left.text()),
            ))
        }
    }
}

/// Whether every cause of the error is one of [`KNOWN_UPDATE_ERRORS`].
fn is_known_update_error(response: &Response) -> bool {
    let status = response.json();
    let causes = status["details"]["causes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let is_known = |cause: &Value| {
        let field = cause["field"].as_str().unwrap_or_default();
        KNOWN_UPDATE_ERRORS.iter().any(|known| field.starts_with(known))
    };
    response.code == 422 && !causes.is_empty() && causes.iter().all(is_known)
}

/// Removes the annotation that a real server omits from `PartialObjectMetadata`: a former field of DaemonSets.
fn without_hidden_annotations(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata["annotations"].take();
        }
    }
    if let Value::Object(fields) = &mut metadata {
        fields.retain(|_, value| !value.is_null());
    }
    metadata
}

fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn violated(what: &str, target: &str, detail: &str) -> Violation {
    Invariant::ReadableAgain.violated(format!("{what} of {target}: {detail}"))
}
