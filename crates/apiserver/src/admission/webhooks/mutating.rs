//! Mutating webhooks: each is asked in turn, and sees what those before it did.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value as Json;

use super::{HookError, Matched, Webhooks, review};
use crate::{
    admission::{
        mutating::decode,
        request::{self, Attributes},
        versions::{WholeObjects, at_version, convert, is_same},
    },
    depth,
    fields::Managed,
    object::{ManagedFields, Object},
    patch::{Operation, apply_operations, decode_webhook_patch},
    registry::Resource,
    schema::{FieldError, Problem, Source},
    status::Status,
    warnings::Warnings,
    webhook::{not_an_object, type_mismatch},
};

/// What the first pass of the mutating stage leaves for the second.
#[derive(Default)]
pub(in crate::admission) struct WebhookReinvocation {
    /// The object after the first pass.
    last_output: Option<Object>,
    /// The webhooks that were asked since the last change, and want to be asked again after one.
    invoked: HashSet<Arc<str>>,
    /// Those that are asked again.
    reinvoke: HashSet<Arc<str>>,
}

impl WebhookReinvocation {
    fn changed(&mut self) {
        self.reinvoke.extend(self.invoked.drain());
    }
}

impl Webhooks {
    /// Lets the mutating webhooks change an object; `None` in a deletion. Returns whether one did. Adds warnings for the
    /// client.
    pub(in crate::admission) fn mutate(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
        old: Option<&Object>,
        state: &mut WebhookReinvocation,
        (is_second, warnings): (bool, &mut Warnings),
    ) -> Result<bool, Status> {
        let webhooks = self.mutating.webhooks(&self.store);
        if is_second && state.last_output.as_ref() != object.as_deref() {
            state.changed();
        }
        let round = if is_second { "mutate again" } else { "mutate" };
        let mut has_changed = false;
        for webhook in &webhooks {
            let objects = [object.as_deref(), old];
            let whole = WholeObjects::new(objects);
            let Some(matched) = self.match_one(webhook, attributes, (objects, &whole))? else {
                continue;
            };
            // One that did not match in the first pass is not asked in the second.
            if is_second && !state.reinvoke.contains(&webhook.id) {
                continue;
            }
            let call = review::call(&matched, review::fields(&matched, attributes, objects)?, round);
            let answer = attributes.caller.answers.get(call)?;
            let patched = match review::patch_of(&matched, &answer, true, warnings) {
                Ok(Some(patch)) => apply(&matched, attributes, object.as_deref(), &patch, warnings),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match patched {
                Ok(Some(patched)) => {
                    if let Some(object) = object.as_deref_mut() {
                        *object = patched;
                    }
                    state.changed();
                    has_changed = true;
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(status) = webhook.refuse(error) {
                        return Err(status);
                    }
                }
            }
            if webhook.may_reinvoke {
                state.invoked.insert(webhook.id.clone());
            }
        }
        state.last_output = object.as_deref().cloned();
        Ok(has_changed)
    }
}

/// Applies the patch of a webhook. `None` if it changes nothing.
fn apply(
    matched: &Matched<'_>,
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    patch: &review::Patch,
    warnings: &mut Warnings,
) -> Result<Option<Object>, HookError> {
    let operations = decode_webhook_patch(&patch.json)
        .map_err(|why| HookError::Call(format!("received undecodable patch in webhook response: {why}")))?;
    if operations.is_empty() {
        return Ok(None);
    }
    let internal = |why: String| HookError::Status(Status::internal(why));
    if object.is_some() && patch.kind != "JSONPatch" {
        return Err(HookError::Call(format!(
            "unsupported patch type {:?}",
            patch.kind
        )));
    }
    let Some(object) = object else {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            matched.webhook.name
        )));
    };
    let before = at_version(attributes, matched.resource, object)
        .map_err(HookError::Status)?
        .0
        .into_owned();
    // Few patches touch the managed fields.
    let touches_managed_fields = operations.iter().any(Operation::touches_managed_fields);
    let mut tree = if touches_managed_fields {
        before.clone().into_value()
    } else {
        before.tree().clone()
    };
    apply_operations(&operations, &mut tree).map_err(|why| internal(why.to_string()))?;
    if depth::of_value(&tree) > depth::limit() {
        return Err(internal("the patch of a webhook nests too deep".to_owned()));
    }
    check_document(&tree, attributes.is_object() && matched.resource.is_custom).map_err(internal)?;
    check_type(&tree, &before, attributes, matched.resource)?;
    if attributes.resource.is_custom {
        if attributes.operation == request::Operation::Create && has_no_room_for_metadata(&tree) {
            return Err(internal("system metadata was not initialized".to_owned()));
        }
        drop_malformed_metadata(&mut tree);
    }
    let (mut patched, _) = decode(tree, attributes, matched.resource, Source::Json).map_err(internal)?;
    if touches_managed_fields {
        restore_managed_fields(&mut patched, &before, warnings);
    } else {
        patched.set_managed_fields(before.managed_fields().clone());
    }
    // A real server compares its types with and without their kind: every patch of a built-in kind is a change.
    if patched == before && attributes.resource.is_custom {
        return Ok(None);
    }
    if !attributes.is_object() || is_same(attributes.resource, matched.resource) {
        return Ok(Some(patched));
    }
    convert(
        matched.resource,
        attributes.resource,
        patched,
        &attributes.caller.answers,
    )
    .map(Some)
    .map_err(HookError::Status)
}

/// Checks that a patch leaves a document that Go's decoder takes for an object, with its messages.
fn check_document(patched: &Json, is_custom: bool) -> Result<(), String> {
    if !patched.is_object() {
        return Err(not_an_object(patched));
    }
    for key in ["apiVersion", "kind"] {
        let value = &patched[key];
        if !value.is_null() && !value.is_string() {
            let why = type_mismatch(value, &format!(".{key}"), "string");
            return Err(format!("couldn't get version/kind; json parse error: {why}"));
        }
    }
    if is_custom && patched["kind"].as_str().unwrap_or_default().is_empty() {
        return Err(format!("Object 'Kind' is missing in '{patched}'"));
    }
    Ok(())
}

/// Whether something else is where the metadata would be.
fn has_no_room_for_metadata(tree: &Json) -> bool {
    !matches!(tree.get("metadata"), None | Some(Json::Null | Json::Object(_)))
}

/// Rejects a patch that changes what the object is.
fn check_type(
    patched: &Json,
    before: &Object,
    attributes: &Attributes<'_>,
    matched: &Resource,
) -> Result<(), HookError> {
    let text = |key: &str| patched[key].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let is_same = |key: &str, text: &str| text.is_empty() || before.text_at(key) == *text;
    if !attributes.is_object() || (is_same("apiVersion", api_version) && is_same("kind", kind)) {
        return Ok(());
    }
    if matched.is_custom {
        return Err(HookError::Status(if is_same("apiVersion", api_version) {
            let problem = Problem::Invalid(kind.into(), format!("must be {}", matched.kind));
            let errors = [FieldError::new("kind", problem)];
            let name = patched["metadata"]["name"].as_str().unwrap_or_default();
            Status::invalid(&matched.group, kind, name, &errors)
        } else {
            Status::without_reason(format!(
                "request to convert CR from an invalid group/version: {api_version}"
            ))
        }));
    }
    // A real server says this of kinds that it has, and the next of others.
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if is_same("apiVersion", api_version) {
        let package = if group.is_empty() {
            "core"
        } else {
            group.split('.').next().unwrap_or_default()
        };
        return Err(HookError::Status(Status::without_reason(format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            matched.kind
        ))));
    }
    Err(HookError::Status(Status::internal(format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    ))))
}

/// Drops fields of a custom resource's metadata that are of another type, as a real server does whenever it reads one.
fn drop_malformed_metadata(tree: &mut Json) {
    if has_no_room_for_metadata(tree) {
        tree["metadata"] = Json::Null;
    }
    let Some(metadata) = tree.get_mut("metadata").and_then(Json::as_object_mut) else {
        return;
    };
    metadata.retain(|key, value| match &**key {
        "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion" => value.is_string(),
        "creationTimestamp" | "deletionTimestamp" => {
            let text = value.as_str();
            text.is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
        }
        "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
        "labels" | "annotations" => value.is_object(),
        "finalizers" => value
            .as_array()
            .is_some_and(|finalizers| finalizers.iter().all(Json::is_string)),
        "ownerReferences" => value
            .as_array()
            .is_some_and(|owners| owners.iter().all(Json::is_object)),
        _ => true,
    });
    for key in ["labels", "annotations"] {
        if let Some(texts) = metadata.get_mut(key).and_then(Json::as_object_mut) {
            texts.retain(|_, value| value.is_string());
        }
    }
}

/// Keeps the managed fields that a webhook has left, if they are valid, and otherwise restores them.
fn restore_managed_fields(patched: &mut Object, before: &Object, warnings: &mut Warnings) {
    let ManagedFields::Submitted(submitted) = patched.managed_fields() else {
        return;
    };
    let kept = match valid_managed_fields(submitted) {
        // An empty list resets them.
        Ok(entries) if entries.as_array().is_none_or(Vec::is_empty) => ManagedFields::None,
        Ok(entries) => ManagedFields::from_stored(entries.to_string()),
        Err(why) => {
            warnings.push(&format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            ));
            before.managed_fields().clone()
        }
    };
    patched.set_managed_fields(kept);
}

/// The entries of valid managed fields, or why they are invalid, in kube-apiserver's words.
fn valid_managed_fields(submitted: &Json) -> Result<Json, String> {
    const KEYS: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    let mut entries = Vec::new();
    for (index, entry) in submitted.as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            return Err("operation must be `Apply` or `Update`".to_owned());
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            return Err(format!(
                "invalid fieldsType {:?} in managed fields entry {index}",
                text("fieldsType")
            ));
        }
        let known = KEYS.iter().filter_map(|key| {
            let value = entry.get(key).filter(|value| !value.is_null())?;
            Some(((*key).to_owned(), value.clone()))
        });
        entries.push(Json::Object(known.collect()));
    }
    let entries = Json::Array(entries);
    if Managed::from_client(&entries).is_none() {
        return Err("error decoding set: a field has no type, such as f:name".to_owned());
    }
    Ok(entries)
}
