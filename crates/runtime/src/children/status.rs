//! Applies the status of the parent object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    Parent,
    compare::{covers, fingerprint},
    error::ChildError,
    history::AppliedState,
};
use crate::{
    clock::Clock,
    conditions::{ConditionUpdate, Conditions as _},
    error::Error,
};

impl Parent<'_> {
    /// Applies the status if it differs. Returns the object's new resource version if it was written.
    ///
    /// Only the server knows whether an extra field must be removed, so a status with extra fields is applied once, and not
    /// again while neither side changes.
    pub(super) async fn write_status(
        &self,
        wanted: Option<Result<Value, serde_json::Error>>,
        conditions: Vec<ConditionUpdate>,
    ) -> Result<Option<String>, Error> {
        if wanted.is_none() && conditions.is_empty() {
            return Ok(None);
        }
        let mut wanted = wanted.unwrap_or_else(|| Ok(json!({}))).map_err(|cause| {
            let what = format!("the status of {}", self.key);
            let cause = cause.to_string();
            Error::terminal(ChildError::Serialization { what, cause })
        })?;
        let actual = self.object.status()?;
        if !conditions.is_empty() {
            wanted["conditions"] = json!(self.conditions(&actual, conditions));
        }
        let state = AppliedState {
            desired_hash: fingerprint(&wanted),
            actual_hash: fingerprint(&actual),
        };
        let is_up_to_date = covers(&actual, &wanted) && covers(&wanted, &actual);
        if is_up_to_date || self.history.lock().status(&self.key) == Some(state) {
            return Ok(None);
        }
        let resource = self.object.resource();
        let body = DynamicObject {
            types: None,
            metadata: self.object.meta().clone(),
            data: json!({ "status": wanted }),
        };
        let written = self.ctx.term.writer.dynamic(resource).apply_status(&body).await?;
        let version = written.metadata.resource_version.clone();
        // Round-tripped through the type, because it is compared like that.
        let actual = self.object.status_of(&written)?;
        let actual_hash = fingerprint(&actual);
        self.history
            .lock()
            .record_status(&self.key, AppliedState { actual_hash, ..state });
        Ok(version)
    }

    /// The updated conditions, with transition times from the existing ones. Conditions of other controllers are left out.
    fn conditions(&self, actual: &Value, updates: Vec<ConditionUpdate>) -> Vec<Condition> {
        let before = actual.get("conditions").and_then(Value::as_array);
        let ours = |condition: &Condition| {
            updates
                .iter()
                .any(|update| update.condition_type() == condition.type_)
        };
        let mut conditions: Vec<Condition> = before
            .into_iter()
            .flatten()
            .filter_map(|condition| {
                // Older kinds omit empty fields.
                let mut complete = json!({ "message": "", "reason": "" });
                let fields = condition.as_object()?.clone();
                complete.as_object_mut()?.extend(fields);
                serde_json::from_value(complete).ok()
            })
            .filter(ours)
            .collect();
        let generation = self.object.meta().generation;
        for update in updates {
            conditions.set(update.observed_generation(generation), &Clock::system());
        }
        conditions
    }
}
