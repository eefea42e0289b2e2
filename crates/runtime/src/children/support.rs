//! Whether the status of a kind has a place for the standard conditions.

use serde_json::{Value, json};
use windlass_clock::Clock;

use super::{
    Parent,
    history::{ConditionSupport, KindSupport},
    status::{CONDITIONS, OBSERVED_GENERATION, StatusUpdate},
};
use crate::{
    conditions::{ConditionUpdate, Conditions as _, READY_CONDITION},
    error::Error,
};

impl Parent<'_> {
    /// Which fields the status has for the standard conditions. They are not written to statuses that belong to Kubernetes'
    /// own controllers, nor if the type would lose them: the server would reject them.
    pub(super) fn condition_support(&self, update: &StatusUpdate) -> Result<ConditionSupport, Error> {
        let none = ConditionSupport::default();
        if !update.is_reported || self.ctx.term.listers.child_options.without_conditions {
            return Ok(none);
        }
        let kind = self.object.kind();
        let known = self.history.lock().support(&kind);
        if let Some(KindSupport::Typed(known)) = known {
            return Ok(known);
        }
        let base = match &update.fields {
            Some(fields) => fields.clone(),
            None => self.object.status()?,
        };
        let support = match known {
            Some(known) => known,
            None => {
                let Some(support) = self.probe_support(&base) else {
                    return Ok(none);
                };
                if !self.object.is_raw() {
                    self.history.lock().set_support(kind, support);
                }
                support
            }
        };
        match support {
            KindSupport::Typed(support) => Ok(support),
            // What is or was there is in the schema.
            KindSupport::Untyped => {
                let actual = self.object.status()?;
                let has = |name| base.get(name).or(actual.get(name)).is_some();
                Ok(ConditionSupport {
                    conditions: !update.conditions.is_empty() || has(CONDITIONS),
                    observed_generation: has(OBSERVED_GENERATION),
                })
            }
        }
    }

    /// Finds out which fields the kind's type keeps, if it is not known yet.
    pub(super) fn learn_support(&self) {
        let kind = self.object.kind();
        if self.history.lock().support(&kind).is_some() {
            return;
        }
        let base = self.object.status().unwrap_or_default();
        if let Some(support) = self.probe_support(&base) {
            self.history.lock().set_support(kind, support);
        }
    }

    /// Finds out which fields the kind's type keeps. `None` if it requires fields that this status does not have.
    fn probe_support(&self, base: &Value) -> Option<KindSupport> {
        let none = KindSupport::Typed(ConditionSupport::default());
        let group = self.object.resource().group;
        if !group.contains('.') || group.ends_with(".k8s.io") {
            return Some(none);
        }
        let mut conditions = Vec::new();
        let probe = ConditionUpdate::true_(READY_CONDITION, "Probe").message("probe");
        conditions.set(probe.observed_generation(Some(1)), &Clock::system());
        let probes = [
            ("unknownField", json!("probe")),
            (OBSERVED_GENERATION, json!(1)),
            (CONDITIONS, json!(conditions)),
        ];
        let kept = |name: &str, value: &Value| {
            let mut status = if base.is_object() { base.clone() } else { json!({}) };
            status[name] = value.clone();
            self.object
                .with_status(status)
                .ok()
                .map(|kept| kept.get(name) == Some(value))
        };
        let [is_untyped, observed_generation, conditions] =
            probes.each_ref().map(|(name, value)| kept(name, value));
        if is_untyped == Some(true) {
            return Some(KindSupport::Untyped);
        }
        // The type may just miss a required field.
        if conditions.is_none() && (!base.is_object() || self.object.with_status(base.clone()).is_err()) {
            return None;
        }
        let conditions = conditions == Some(true);
        Some(KindSupport::Typed(ConditionSupport {
            conditions,
            observed_generation: conditions && observed_generation == Some(true),
        }))
    }
}
