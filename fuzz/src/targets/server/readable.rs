//! Accepted means readable again: as every view, in every encoding, by lists and watches; writable again without a change; and
//! it can be deleted.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::ask::{Answer, Subject};
use crate::laws::{Law, Violation};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// How a real server refuses to apply to an object that has an element without its key in a list that is a map: one can create
/// it, but not say who owns its fields.
const WITHOUT_MANAGER: &str = "failed to create manager for existing fields";

/// Refusals of an unchanged update that a real server has too: it holds updates to rules that it does not hold creations to.
const REFUSED_AGAIN: &[&str] = &[
    // ValidateNodeUpdate looks for duplicate addresses, ValidateNode does not.
    "status.addresses",
];

/// Kinds that the next update may change although nothing was changed, on a real server too: both take labels from their own
/// template if they have none.
const SETTLED_BY_AN_UPDATE: [&str; 2] = ["jobs", "replicationcontrollers"];

/// An object in the server.
pub(super) struct Stored<'a> {
    subject: &'a Subject,
    /// `/api/v1/namespaces/default/configmaps`
    collection: &'a str,
    name: &'a str,
}

impl<'a> Stored<'a> {
    pub(super) fn new(subject: &'a Subject, collection: &'a str, name: &'a str) -> Self {
        Self {
            subject,
            collection,
            name,
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, self.escaped())
    }

    /// Its name as a part of a URL: names of roles may have any character.
    fn escaped(&self) -> impl std::fmt::Display {
        utf8_percent_encode(self.name, NON_ALPHANUMERIC)
    }

    /// Its name as a value in a field selector.
    fn in_selector(&self) -> String {
        let mut value = self.name.replace('\\', "\\\\");
        for special in [",", "="] {
            value = value.replace(special, &format!("\\{special}"));
        }
        utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string()
    }

    /// Whether it is there at all.
    pub(super) fn exists(&self) -> bool {
        self.subject.get(&self.path(), JSON).code != 404
    }

    /// Checks the law. The object stays as it is.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.check_reads()?;
        let plural = self.collection.rsplit('/').next().unwrap_or_default();
        if SETTLED_BY_AN_UPDATE.contains(&plural) {
            let object = self.get(&self.path(), JSON)?.body;
            self.subject.send("PUT", &self.path(), &[], object).check()?;
        }
        self.check_writes()
    }

    /// Reads it in every way, and compares what is read.
    pub(super) fn check_reads(&self) -> Result<(), Violation> {
        let path = self.path();
        let object = self.get(&path, JSON)?;
        self.get(&path, YAML)?;
        let table = self.get(&path, TABLE)?;
        let metadata = self.get(&path, METADATA)?;
        let selected = format!(
            "{}?fieldSelector=metadata.name%3D{}",
            self.collection,
            self.in_selector()
        );
        let list = self.get(&selected, JSON)?;
        self.get(&selected, TABLE)?;
        if object.is_deep() {
            return Ok(());
        }
        let object = object.json();
        let Some(version) = version(&object) else {
            return Err(broken("GET", &path, &object.to_string()));
        };
        if table.json()["rows"].as_array().map(Vec::len) != Some(1) {
            return Err(broken("GET as a Table", &path, &table.text()));
        }
        if in_views(&metadata.json()["metadata"]) != in_views(&object["metadata"]) {
            let detail = format!("{}, and the object is {object}", metadata.text());
            return Err(broken("GET as PartialObjectMetadata", &path, &detail));
        }
        let listed = &list.json()["items"][0];
        if ["metadata", "spec", "status", "data"]
            .iter()
            .any(|part| listed.get(part) != object.get(part))
        {
            return Err(broken("LIST", &selected, &list.text()));
        }
        self.check_watch(&selected, version, &object)
    }

    /// Writes it as it was read: nothing changes.
    fn check_writes(&self) -> Result<(), Violation> {
        let path = self.path();
        let object = self.get(&path, JSON)?;
        if object.is_deep() {
            return Ok(());
        }
        let (json, object) = (object.body.clone(), object.json());
        let version = version(&object).unwrap_or_default();
        let yaml = self.get(&path, YAML)?.body;
        self.unchanged("PUT as JSON", &path, JSON, json, version)?;
        self.unchanged("PUT as YAML", &path, YAML, yaml, version)?;
        let minimal = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": self.name},
        });
        let apply = format!("{path}?fieldManager=fuzz-again&force=true");
        // The first one may take over managed fields of old, or drop those that are no use; then nothing changes.
        let mut last = version;
        for _ in 0..3 {
            let body = minimal.to_string().into_bytes();
            let applied = self
                .subject
                .send("PATCH", &apply, &[("content-type", APPLY)], body);
            applied.check()?;
            if is_known_refusal(&applied) || applied.text().contains(WITHOUT_MANAGER) {
                return Ok(());
            }
            let Some(version) = self::version(&applied.json()).filter(|_| applied.is_success()) else {
                return Err(broken("apply", &path, &applied.text()));
            };
            if std::mem::replace(&mut last, version) == version {
                return Ok(());
            }
        }
        Err(broken("apply", &path, "each of three times changes it"))
    }

    /// The event of the last write is in the history.
    fn check_watch(&self, selected: &str, version: u64, object: &Value) -> Result<(), Violation> {
        let before = version.saturating_sub(1);
        let target = format!("{selected}&watch=true&timeoutSeconds=1&resourceVersion={before}");
        let answer = self.get(&target, JSON)?;
        let event: Value = serde_json::Deserializer::from_slice(&answer.body)
            .into_iter()
            .next()
            .and_then(Result::ok)
            .unwrap_or_default();
        if event["object"] != *object {
            return Err(broken("watch", &target, &answer.text()));
        }
        Ok(())
    }

    fn get(&self, target: &str, accept: &str) -> Result<Answer, Violation> {
        let answer = self.subject.get(target, accept);
        answer.check()?;
        if answer.code == 200 {
            Ok(answer)
        } else {
            Err(broken(&format!("GET as {accept}"), target, &answer.text()))
        }
    }

    /// Puts what must change nothing.
    fn unchanged(
        &self,
        what: &str,
        target: &str,
        content_type: &str,
        body: Vec<u8>,
        version: u64,
    ) -> Result<(), Violation> {
        let sent = String::from_utf8_lossy(&body).into_owned();
        let answer = self
            .subject
            .send("PUT", target, &[("content-type", content_type)], body);
        answer.check()?;
        let now = self::version(&answer.json());
        if answer.code == 200 && now == Some(version) {
            return Ok(());
        }
        if is_known_refusal(&answer) {
            return Ok(());
        }
        let detail = format!("{}\n{}\nwas sent: {sent}", answer.code, answer.text());
        Err(broken(what, target, &detail))
    }

    /// Deletes it, with the finalizers that are in the way. Then it is gone.
    pub(super) fn delete(&self) -> Result<(), Violation> {
        let path = self.path();
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let deleted = self
            .subject
            .send("DELETE", &path, &[], options.to_string().into());
        deleted.check()?;
        if deleted.code == 404 {
            return Ok(());
        }
        if !deleted.is_success() {
            return Err(broken("DELETE", &path, &deleted.text()));
        }
        if self.exists() {
            let without = json!({"metadata": {"finalizers": null}});
            if self.collection.ends_with("/namespaces") {
                let namespace = json!({"metadata": {"name": self.name}, "spec": {"finalizers": []}});
                let body = namespace.to_string().into_bytes();
                self.subject.send("PUT", &format!("{path}/finalize"), &[], body);
            }
            let body = without.to_string().into_bytes();
            self.subject
                .send("PATCH", &path, &[("content-type", MERGE)], body);
        }
        let left = self.subject.get(&path, JSON);
        if left.code == 404 {
            Ok(())
        } else {
            Err(broken(
                "DELETE",
                &path,
                &format!("it is still there: {}", left.text()),
            ))
        }
    }
}

/// Whether all that is wrong is one of [`REFUSED_AGAIN`].
fn is_known_refusal(answer: &Answer) -> bool {
    let status = answer.json();
    let causes = status["details"]["causes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let is_known = |cause: &Value| {
        let field = cause["field"].as_str().unwrap_or_default();
        REFUSED_AGAIN.iter().any(|known| field.starts_with(known))
    };
    answer.code == 422 && !causes.is_empty() && causes.iter().all(is_known)
}

/// Metadata without what a real server leaves out of views: the field of a daemon set that became an annotation.
fn in_views(metadata: &Value) -> Value {
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

fn broken(what: &str, target: &str, detail: &str) -> Violation {
    Law::ReadableAgain.broken(format!("{what} of {target}: {detail}"))
}
