//! The status of the object whose children are looked at.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_cache::Cacheable;

use super::{
    Parent,
    compare::{covers, fingerprint},
    error::ChildError,
    memory::Deed,
};
use crate::{
    clock::Clock,
    conditions::{Conditions as _, Finding},
    error::Error,
};

impl<K: Cacheable + Serialize> Parent<'_, K> {
    /// Applies the status, unless it is there already. The answer is the object's version if it was written.
    ///
    /// Whether a field that is no longer said must go is known only to the server, so a status that is there and says more
    /// is applied once, and not again while neither side changes.
    pub(super) async fn write_status(
        &self,
        wanted: Option<Result<Value, serde_json::Error>>,
        findings: Vec<Finding>,
    ) -> Result<Option<String>, Error> {
        if wanted.is_none() && findings.is_empty() {
            return Ok(None);
        }
        let mut wanted = wanted.unwrap_or_else(|| Ok(json!({}))).map_err(|cause| {
            let what = format!("the status of {}", self.key);
            let cause = cause.to_string();
            Error::terminal(ChildError::Unserialisable { what, cause })
        })?;
        let there = serde_json::to_value(self.object)?["status"].take();
        if !findings.is_empty() {
            wanted["conditions"] = json!(self.conditions(&there, findings));
        }
        let deed = Deed {
            wanted: fingerprint(&wanted),
            there: fingerprint(&there),
        };
        let is_there = covers(&there, &wanted) && covers(&wanted, &there);
        if is_there || self.memory.lock().status(&self.key) == Some(deed) {
            return Ok(None);
        }
        let resource = ApiResource::erase::<K>(self.kind);
        let body = DynamicObject {
            types: None,
            metadata: self.object.meta().clone(),
            data: json!({ "status": wanted }),
        };
        let written = self.ctx.world.writer.of(resource).apply_status(&body).await?;
        // As the type sees it, which is how it is compared.
        let version = written.metadata.resource_version.clone();
        let written: K = serde_json::from_value(serde_json::to_value(written)?)?;
        let there = fingerprint(&serde_json::to_value(written)?["status"]);
        self.memory
            .lock()
            .status_written(&self.key, Deed { there, ..deed });
        Ok(version)
    }

    /// What was found, as conditions; those that are there say since when. Others' are theirs, whatever they look like.
    fn conditions(&self, there: &Value, findings: Vec<Finding>) -> Vec<Condition> {
        let before = there.get("conditions").and_then(Value::as_array);
        let ours = |condition: &Condition| findings.iter().any(|finding| finding.kind() == condition.type_);
        let mut conditions: Vec<Condition> = before
            .into_iter()
            .flatten()
            .filter_map(|condition| {
                // Older kinds leave out what is empty.
                let mut whole = json!({ "message": "", "reason": "" });
                let fields = condition.as_object()?.clone();
                whole.as_object_mut()?.extend(fields);
                serde_json::from_value(whole).ok()
            })
            .filter(ours)
            .collect();
        let generation = self.object.meta().generation;
        for finding in findings {
            conditions.set(finding.at(generation), &Clock::system());
        }
        conditions
    }
}
