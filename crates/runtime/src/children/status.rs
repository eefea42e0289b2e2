//! Applies the status of the parent object.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Resource as _,
    api::GetParams,
    core::{ApiResource, DynamicObject, Request},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use windlass_cache::ObjectKey;
use windlass_clock::Clock;

use super::{
    Parent,
    compare::{content, covers, fingerprint},
    history::{AppliedState, ConditionSupport},
    owned_fields::applied_status,
    report::Report,
};
use crate::{
    conditions::{ConditionUpdate, Conditions as _, READY_CONDITION, STANDARD_CONDITIONS},
    error::Error,
    reconcile::Context,
    writer::WriteError,
};

pub(super) const CONDITIONS: &str = "conditions";
pub(super) const OBSERVED_GENERATION: &str = "observedGeneration";

/// What to write.
pub(super) struct StatusUpdate {
    /// The author's fields. `None`: those that exist are kept.
    pub(super) fields: Option<Value>,
    /// The author's conditions.
    pub(super) conditions: Vec<ConditionUpdate>,
    /// Whether the author's earlier conditions are kept.
    pub(super) keeps_conditions: bool,
    pub(super) report: Report,
    /// Whether the standard conditions are written.
    pub(super) is_reported: bool,
    /// Whether nothing is written without them: a status that cannot tell a failure would claim success.
    pub(super) is_failure: bool,
}

impl StatusUpdate {
    /// A failure, with these conditions of the author; the rest of the status is kept.
    pub(super) fn failure(report: Report, conditions: Vec<ConditionUpdate>, is_reported: bool) -> Self {
        Self {
            fields: None,
            conditions,
            keeps_conditions: true,
            report,
            is_reported,
            is_failure: false,
        }
    }
}

/// What was written.
#[derive(Default)]
pub(super) struct StatusOutcome {
    /// The write, if it changed the status.
    pub(super) written: Option<StatusWrite>,
    /// The status has a place for the report.
    pub(super) is_visible: bool,
    /// The report is not yet in the status that users see, or the status has no place for it.
    pub(super) is_news: bool,
    /// There were too many reports: it is written after this time.
    pub(super) retry_after: Option<Duration>,
}

/// A write of the status.
pub(super) struct StatusWrite {
    /// The object's new resource version.
    pub(super) version: String,
    /// The object afterwards.
    object: DynamicObject,
    /// The status that the write is expected to lead to.
    expected: Value,
}

/// The status to apply, compared with the existing one.
struct Comparison {
    /// Without fields that are kept.
    wanted: Map<String, Value>,
    /// The types of the conditions that are set.
    types: Vec<String>,
    /// Like `wanted`, with all fields and conditions that are kept, of all owners.
    expected: Value,
    actual: Value,
    /// Whether fields that are not in `wanted` are kept.
    keeps_fields: bool,
    /// Whether fields or conditions are kept that others may own.
    keeps_others: bool,
    /// The condition types that the runtime sets or removes.
    reported: Vec<&'static str>,
}

impl Parent<'_> {
    /// Applies the status if it differs.
    ///
    /// Only the server knows whether an extra field must be removed, or which fields must be repeated to keep them. If that
    /// matters, the live object is read: its managed fields tell.
    pub(super) async fn write_status(&self, update: StatusUpdate) -> Result<StatusOutcome, Error> {
        let is_authors = update.fields.is_some() || !update.conditions.is_empty();
        let silent = StatusOutcome {
            is_news: true,
            ..StatusOutcome::default()
        };
        let support = self.condition_support(&update)?;
        if !support.conditions && (!is_authors || update.is_failure) {
            return Ok(silent);
        }
        let compared = self.compare(update, support)?;
        let Comparison { expected, actual, .. } = &compared;
        let is_news = !support.conditions || standard_conditions(expected) != standard_conditions(actual);
        let unchanged = StatusOutcome {
            is_news,
            is_visible: support.conditions,
            ..StatusOutcome::default()
        };
        if is_equal(actual, expected) {
            return Ok(unchanged);
        }
        let state = AppliedState {
            desired_hash: fingerprint(expected),
            actual_hash: fingerprint(actual),
        };
        if self.history.lock().status(&self.key) == Some(state) {
            return Ok(unchanged);
        }
        if support.conditions
            // It is the last word about the object, and triggers nothing.
            && !self.ctx.run.is_last_attempt
            && self.is_only_a_report(&compared)
            && let Err(delay) = self.history.lock().try_report(&self.key, Instant::now())
        {
            return Ok(StatusOutcome {
                retry_after: Some(delay),
                is_visible: true,
                ..StatusOutcome::default()
            });
        }
        let mut wanted = compared.wanted.clone();
        if compared.keeps_others || covers(&with_types(actual, &compared.types), expected) {
            let Some(live) = self.read_live().await? else {
                return Ok(unchanged);
            };
            let ours = applied_status(&live, self.ctx.term.writer.field_manager());
            if compared.keeps_fields {
                keep_fields(&mut wanted, &ours);
            }
            keep_conditions(&mut wanted, &compared.types, &ours);
            if is_equal(&ours, &Value::Object(wanted.clone())) {
                self.history.lock().record_status(&self.key, state);
                return Ok(unchanged);
            }
        }
        let body = DynamicObject {
            types: None,
            metadata: self.object.meta().clone(),
            data: json!({ "status": wanted }),
        };
        let writer = self.ctx.term.writer.dynamic(self.object.resource());
        let written = match writer.apply_status(&body).await {
            Ok(written) => written,
            Err(error) if self.is_gone(&error) => return Ok(unchanged),
            Err(error) => return Err(error.into()),
        };
        // Round-tripped through the type, because it is compared like that.
        let after = self.object.value_of(&written)?;
        let actual_hash = fingerprint(&after["status"]);
        let applied = AppliedState { actual_hash, ..state };
        self.history.lock().record_status(&self.key, applied);
        let version = written.metadata.resource_version.clone();
        let version = version.filter(|version| Some(version) != self.object.meta().resource_version.as_ref());
        Ok(StatusOutcome {
            written: version.map(|version| StatusWrite {
                version,
                object: written,
                expected: compared.expected,
            }),
            is_visible: support.conditions,
            is_news,
            retry_after: None,
        })
    }

    /// Whether a write of the status is all that happened to the object since it was read.
    pub(super) fn is_only_change(&self, write: &StatusWrite) -> Result<bool, serde_json::Error> {
        let (before, after) = (self.object.meta(), &write.object.metadata);
        let has_same_metadata =
            (before.generation, &before.deletion_timestamp) == (after.generation, &after.deletion_timestamp);
        let after = self.object.value_of(&write.object)?;
        let expected = self.object.with_status(write.expected.clone())?;
        Ok(has_same_metadata
            && is_equal(&after["status"], &expected)
            && is_equal(&content(self.object.to_value()?), &content(after)))
    }

    fn compare(&self, update: StatusUpdate, support: ConditionSupport) -> Result<Comparison, Error> {
        let actual = self.object.status()?;
        let keeps_fields = update.fields.is_none();
        let mut wanted = match update.fields {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let (mut authors, mut reported) = (update.conditions, Vec::new());
        if support.conditions {
            // A status may have conditions as plain data.
            let plain = wanted.remove(CONDITIONS).map(|plain| parse_conditions(&plain));
            let plain = plain.into_iter().flatten().map(ConditionUpdate::from);
            authors = plain.chain(authors).collect();
            reported = update.report.reported_types(&authors);
            authors = update.report.conditions(&authors);
        }
        let types: Vec<_> = authors
            .iter()
            .map(|update| update.condition_type().to_owned())
            .collect();
        let before = actual.get(CONDITIONS).map(parse_conditions).unwrap_or_default();
        let is_kept = |condition: &Condition| {
            update.keeps_conditions
                && !(support.conditions && STANDARD_CONDITIONS.contains(&&*condition.type_))
        };
        let is_set = |condition: &Condition| types.contains(&condition.type_);
        let mut keeps_others = before
            .iter()
            .any(|condition| is_kept(condition) && !is_set(condition));
        let mut conditions: Vec<_> = before
            .into_iter()
            .filter(|old| is_set(old) || is_kept(old))
            .collect();
        let generation = self.object.meta().generation;
        for update in authors {
            conditions.set(update.observed_generation(generation), &Clock::system());
        }
        if !types.is_empty() {
            wanted.insert(CONDITIONS.to_owned(), json!(conditions));
        }
        if support.observed_generation && wanted.get(OBSERVED_GENERATION).is_none_or(Value::is_null) {
            wanted.insert(OBSERVED_GENERATION.to_owned(), json!(generation));
        }
        let mut expected = wanted.clone();
        if keeps_fields {
            for (name, value) in actual.as_object().into_iter().flatten() {
                if !wanted.contains_key(name) && !covers(&Value::Null, value) {
                    expected.insert(name.clone(), value.clone());
                    keeps_others = true;
                }
            }
        }
        Ok(Comparison {
            wanted,
            types,
            expected: Value::Object(expected),
            actual,
            keeps_fields,
            keeps_others,
            reported,
        })
    }

    /// Whether only the runtime's conditions differ, and not because the object has a new generation.
    fn is_only_a_report(&self, compared: &Comparison) -> bool {
        let Comparison { expected, actual, .. } = compared;
        let ready = actual.get(CONDITIONS).map(parse_conditions).unwrap_or_default();
        let others = |status: &Value| {
            let mut status = status.clone();
            if let Some(Value::Array(conditions)) = status.get_mut(CONDITIONS) {
                conditions
                    .retain(|condition| !compared.reported.iter().any(|kind| condition["type"] == *kind));
            }
            status
        };
        !ready.is_stale(READY_CONDITION, self.object.meta().generation)
            && is_equal(&others(expected), &others(actual))
    }

    /// Reads the live object, `None` if it is gone.
    async fn read_live(&self) -> Result<Option<DynamicObject>, Error> {
        let live = read_live(self.ctx, &self.object.resource(), &self.key).await?;
        Ok(live.filter(|live| live.metadata.uid == self.object.meta().uid))
    }

    /// Replaces the report of a failure in the status of an object that is being deleted.
    pub(super) async fn report_terminating(&self) -> Result<(), Error> {
        let tells_failure = standard_conditions(&self.object.status()?)
            .iter()
            .any(|condition| {
                condition.type_ != READY_CONDITION && condition.reason != Report::TERMINATING_REASON
            });
        if tells_failure {
            let update = StatusUpdate::failure(Report::terminating(), Vec::new(), true);
            self.write_status(update).await?;
        }
        Ok(())
    }

    /// Whether the object does not exist any more. Without a status, a kind is not found, but the object is not named.
    fn is_gone(&self, error: &WriteError) -> bool {
        let details = error.status().and_then(|status| status.details.as_ref());
        error.is_uid_mismatch()
            || (error.is_not_found() && details.is_some_and(|details| details.name == self.key.name()))
    }
}

/// Reads a live object, `None` if there is none.
pub(super) async fn read_live(
    ctx: &Context,
    resource: &ApiResource,
    key: &ObjectKey,
) -> Result<Option<DynamicObject>, Error> {
    let request = Request::new(DynamicObject::url_path(resource, key.namespace()));
    let request = request
        .get(key.name(), &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    match ctx.client().request::<DynamicObject>(request).await {
        Ok(live) => Ok(Some(live)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The status with only the conditions of these types.
fn with_types(status: &Value, types: &[String]) -> Value {
    let mut status = status.clone();
    if let Some(Value::Array(conditions)) = status.get_mut(CONDITIONS) {
        conditions.retain(|condition| types.iter().any(|kind| condition["type"] == **kind));
    }
    status
}

/// Adds our other fields to a status.
fn keep_fields(wanted: &mut Map<String, Value>, ours: &Value) {
    for (name, value) in ours.as_object().into_iter().flatten() {
        wanted.entry(name.as_str()).or_insert_with(|| value.clone());
    }
}

/// Leaves out the conditions that are neither set nor ours.
fn keep_conditions(wanted: &mut Map<String, Value>, types: &[String], ours: &Value) {
    let ours = ours.get(CONDITIONS).map(parse_conditions).unwrap_or_default();
    if let Some(Value::Array(conditions)) = wanted.get_mut(CONDITIONS) {
        conditions.retain(|condition| {
            let kind = condition["type"].as_str().unwrap_or_default();
            types.iter().any(|set| set == kind) || ours.of_type(kind).is_some()
        });
    }
}

fn is_equal(one: &Value, other: &Value) -> bool {
    covers(one, other) && covers(other, one)
}

fn standard_conditions(status: &Value) -> Vec<Condition> {
    let mut conditions = status.get(CONDITIONS).map(parse_conditions).unwrap_or_default();
    conditions.retain(|condition| STANDARD_CONDITIONS.contains(&&*condition.type_));
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    conditions
}

fn parse_conditions(list: &Value) -> Vec<Condition> {
    let parse = |condition: &Value| {
        // Older kinds omit empty fields.
        let mut complete = json!({ "message": "", "reason": "" });
        complete.as_object_mut()?.extend(condition.as_object()?.clone());
        serde_json::from_value(complete).ok()
    };
    list.as_array().into_iter().flatten().filter_map(parse).collect()
}
