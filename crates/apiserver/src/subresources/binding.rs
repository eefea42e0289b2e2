//! `pods/binding`: assigns a pod to a node.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{SubresourceBody, SubresourceRequest, created_status, subresource_as};
use crate::{
    media::{self, Encoding},
    request::{Target, Verb},
    status::Status,
    verbs::{Answer, Generation, WriteOptions, WriteVerbs},
};

/// Creates a binding in the collection `bindings`, which predates subresources. Its name is the pod's.
pub(crate) fn bind_by_name(
    writes: &WriteVerbs,
    target: &Target,
    options: &WriteOptions,
    body: &Bytes,
    encoding: Encoding,
) -> Result<Answer, Status> {
    let binding = media::decode(body, encoding, "Binding")?;
    let name = binding
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let catalogue = writes.store.registry.catalogue();
    let pod = Target {
        resource: catalogue.find("", "v1", "pods").expect("built in").clone(),
        name: name.into(),
        subresource: "binding".into(),
        ..target.clone()
    };
    let input = SubresourceBody::Object(body.clone(), encoding);
    subresource_as(writes, (&pod, Some(target)), Verb::Create, options, &input)
}

pub(super) fn bind(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    binding: &Value,
) -> Result<Answer, Status> {
    let SubresourceRequest { target, options } = request;
    request.check_name(binding, "Binding")?;
    let text = |pointer: &str| {
        binding
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = text("/target/kind");
    if !matches!(kind, "" | "Node") {
        return Err(Status::without_reason(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        )));
    }
    let node = text("/target/name");
    if node.is_empty() {
        return Err(Status::without_reason("target.name: Required value"));
    }
    let annotations = binding
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let uid = text("/metadata/uid");
    writes.modify(target, options, Generation::Keep, |pod| {
        let refuse = |why: String| Err(Status::binding_conflict(&target.name, &why));
        if !uid.is_empty() && uid != pod.meta("uid") {
            return refuse(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                pod.meta("uid")
            ));
        }
        if pod.is_deleting() {
            return refuse(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                target.name
            ));
        }
        let assigned = pod.text_at("spec.nodeName");
        if !assigned.is_empty() {
            return refuse(format!(
                "pod {} is already assigned to node {assigned:?}",
                target.name
            ));
        }
        pod.fields_mut().entry("spec").or_insert_with(|| json!({}))["nodeName"] = node.into();
        for (key, value) in annotations.into_iter().flatten() {
            let kept = pod
                .metadata_mut()
                .entry("annotations")
                .or_insert_with(|| json!({}));
            kept[key] = value.clone();
        }
        pod.set_condition(json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": writes.store.environment.now_rfc3339(),
        }));
        Ok(())
    })?;
    Ok(Answer::from_value(201, &created_status()))
}
