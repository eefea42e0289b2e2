//! Validating webhooks: all that match are asked at once. The refusal that arrives first is the answer.

use std::sync::Arc;

use bytes::Bytes;

use super::{Matched, Webhooks, review};
use crate::{
    admission::{request::Attributes, versions::WholeObjects},
    object::Object,
    registry::Resource,
    status::Status,
    warnings::Warnings,
    webhook::{Answer, Call},
};

impl Webhooks {
    /// Asks the validating webhooks. Adds warnings for the client.
    pub(in crate::admission) fn validate(
        &self,
        attributes: &Attributes<'_>,
        (objects, whole): ([Option<&Object>; 2], &WholeObjects<'_>),
        warnings: &mut Warnings,
    ) -> Result<(), Status> {
        let mut calls: Vec<(Matched<'_>, Call)> = Vec::new();
        // Webhooks that see the same version share the bytes of their reviews.
        let mut encoded: Vec<(&Arc<Resource>, Bytes)> = Vec::new();
        for webhook in self.validating.webhooks(&self.store) {
            let Some(matched) = self.match_one(&webhook, attributes, (objects, whole))? else {
                continue;
            };
            let resource = matched.resource;
            let known = encoded.iter().find(|(known, _)| Arc::ptr_eq(known, resource));
            let fields = match known {
                Some((_, fields)) => fields.clone(),
                None => {
                    let fields = review::fields(&matched, attributes, objects)?;
                    encoded.push((resource, fields.clone()));
                    fields
                }
            };
            let call = review::call(&matched, fields, "validate");
            calls.push((matched, call));
        }
        let answers = &attributes.caller.answers;
        let (mut known, mut missing): (Vec<(Matched<'_>, Arc<Answer>)>, Vec<Call>) = (Vec::new(), Vec::new());
        for (matched, call) in calls {
            match answers.find(&call) {
                Some(answer) => known.push((matched, answer)),
                None => missing.push(call),
            }
        }
        if !missing.is_empty() {
            return Err(Status::unanswered(missing));
        }
        known.sort_by_key(|(_, answer)| answer.arrival);
        let mut refusal = None;
        for (matched, answer) in known {
            if let Err(error) = review::patch_of(&matched, &answer, false, warnings) {
                refusal = refusal.or(matched.webhook.refuse(error));
            }
        }
        refusal.map_or(Ok(()), Err)
    }
}
