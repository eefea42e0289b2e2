//! `scale`: the replicas of any kind, as a Scale.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use windlass_api::labels;

use super::SubresourceRequest;
use crate::{
    admission::{Admitted, Operation},
    auth::Caller,
    crd,
    object::Object,
    object_store::ObjectStore,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    schema::{FieldError, Problem},
    status::Status,
    verbs::{Answer, Configuration, Generation, WriteVerbs, apply_to_scale, managed_fields_after_scale},
    warnings::Warnings,
};

/// The JSON pointers of the fields that a kind's Scale shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    /// The selector as text, for custom kinds; built-in ones have it in `spec.selector`.
    pub(crate) selector: Option<String>,
}

impl ScalePaths {
    /// From a CRD's `subresources.scale`.
    pub(crate) fn from_crd(scale: &Value) -> Option<Self> {
        let pointer = |key: &str| Some(scale.get(key)?.as_str()?.replace('.', "/"));
        Some(Self {
            spec_replicas: pointer("specReplicasPath")?,
            status_replicas: pointer("statusReplicasPath")?,
            selector: pointer("labelSelectorPath").filter(|path| !path.is_empty()),
        })
    }

    fn for_resource(resource: &Resource) -> Self {
        resource.scale.clone().unwrap_or_else(|| Self {
            spec_replicas: "/spec/replicas".to_owned(),
            status_replicas: "/status/replicas".to_owned(),
            selector: None,
        })
    }
}

pub(super) fn get_scale(
    store: &ObjectStore,
    target: &Target,
    caller: Option<&Caller>,
) -> Result<Answer, Status> {
    let object = store.current_for(target, caller)?.object.decode()?;
    let resource = &target.resource;
    if resource.is_custom {
        check_paths(&object, resource)?;
        let paths = ScalePaths::for_resource(resource);
        if Value::Object(object.fields().clone())
            .pointer(&paths.spec_replicas)
            .is_none()
        {
            return Err(Status::internal(format!(
                "the spec replicas field {:?} does not exist",
                paths.spec_replicas.replace('/', ".")
            )));
        }
    }
    Ok(Answer::from_value(200, &scale_of(&object, resource)))
}

pub(super) fn update_scale(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    wanted: &Value,
) -> Result<Answer, Status> {
    set_scale(writes, request, |_| Ok(wanted.clone()))
}

pub(super) fn patch_scale(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    body: &Bytes,
    kind: PatchKind,
) -> Result<Answer, Status> {
    if kind == PatchKind::Apply {
        return apply_scale(writes, request, body);
    }
    let (patch, _) = kind.decode(body)?;
    set_scale(writes, request, |mut scale| {
        // A Scale has no lists, so a strategic merge needs no schema.
        patch.apply(None, &mut scale)?;
        Ok(scale)
    })
}

/// Server-side apply to the Scale.
fn apply_scale(writes: &WriteVerbs, request: SubresourceRequest<'_>, body: &Bytes) -> Result<Answer, Status> {
    let SubresourceRequest { target, options } = request;
    let resource = &target.resource;
    let config = Configuration::read(body)?.config;
    let admitted = Admitted::write(target, Operation::Update, options);
    let mut warnings = Warnings::default();
    let change = |object: &mut Object| {
        let (current, unset) = current_scale(object, resource)?;
        let (wanted, managed_fields) = apply_to_scale(
            &writes.store,
            resource,
            options,
            object.managed_fields(),
            &current,
            &config,
        )?;
        let wanted = writes
            .admission
            .mutate_part(&admitted, wanted, Some(&current), &mut warnings)?;
        set_replicas(object, target, &wanted, unset)?;
        object.set_managed_fields(managed_fields);
        Ok(())
    };
    let (changed, found) = modify_scale(writes, request, change)?;
    warnings.extend(&*found);
    Ok(Answer::from_value(200, &scale_of(&changed, resource)).with_warnings(&warnings))
}

/// Changes the Scale with `change`, and writes its replicas into the object.
fn set_scale(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    change: impl Fn(Value) -> Result<Value, Status>,
) -> Result<Answer, Status> {
    let (target, options) = (request.target, request.options);
    let resource = &target.resource;
    let admitted = Admitted::write(target, Operation::Update, options);
    let mut warnings = Warnings::default();
    let change = |object: &mut Object| {
        let (current, unset) = current_scale(object, resource)?;
        let before = scale_of(object, resource);
        let wanted = change(current.clone())?;
        let wanted = writes
            .admission
            .mutate_part(&admitted, wanted, Some(&current), &mut warnings)?;
        set_replicas(object, target, &wanted, unset)?;
        let after = scale_of(object, resource);
        let managed_fields = managed_fields_after_scale(
            &writes.store,
            resource,
            options,
            object.managed_fields(),
            [&before, &after],
        );
        object.set_managed_fields(managed_fields);
        Ok(())
    };
    let (changed, found) = modify_scale(writes, request, change)?;
    warnings.extend(&*found);
    Ok(Answer::from_value(200, &scale_of(&changed, resource)).with_warnings(&warnings))
}

/// Changes the replicas of an object, and lets the validating stage see the valid result.
fn modify_scale(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    change: impl FnMut(&mut Object) -> Result<(), Status>,
) -> Result<(Object, Warnings), Status> {
    let (target, options) = (request.target, request.options);
    let resource = &target.resource;
    let admitted = Admitted::write(target, Operation::Update, options);
    let mut warnings = Warnings::default();
    let admit = |object: &Object, old: &Object| {
        let (current, _) = current_scale(old, resource)?;
        let scale = scale_of(object, resource);
        writes
            .admission
            .validate_part(&admitted, &scale, Some(&current), &mut warnings)
    };
    let modified = writes.modify_admitted(target, options, Generation::Increment, change, admit);
    let (changed, found) = modified?;
    warnings.extend(&*found);
    Ok((changed, warnings))
}

/// The Scale of an object before a change, and whether the object has no replicas.
fn current_scale(object: &Object, resource: &Resource) -> Result<(Value, bool), Status> {
    let mut current = scale_of(object, resource);
    let unset = resource.is_custom
        && object
            .tree()
            .pointer(&ScalePaths::for_resource(resource).spec_replicas)
            .is_none();
    if unset {
        check_paths(object, resource)?;
        current["spec"]["replicas"] = UNSET_REPLICAS.into();
    }
    Ok((current, unset))
}

/// Writes a Scale's replicas into its object.
fn set_replicas(object: &mut Object, target: &Target, wanted: &Value, unset: bool) -> Result<(), Status> {
    let resource = &target.resource;
    let paths = ScalePaths::for_resource(resource);
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    if !name.is_empty() && *name != *target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let version = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && version != object.meta("resourceVersion") {
        return Err(Status::modified(resource, &target.name));
    }
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if unset && replicas == UNSET_REPLICAS {
        return Err(Status::bad_request(format!(
            "the spec replicas field {:?} cannot be empty",
            paths.spec_replicas.replace('/', ".")
        )));
    }
    // A custom resource is validated as a whole, with other messages.
    if replicas < 0 && !resource.is_custom {
        let problem = Problem::Invalid(replicas.into(), "must be greater than or equal to 0".into());
        let errors = [FieldError::new("spec.replicas", problem)];
        return Err(Status::invalid("autoscaling", "Scale", &target.name, &errors));
    }
    set_at(object.fields_mut(), &paths.spec_replicas, replicas.into());
    Ok(())
}

/// The placeholder for absent replicas while a patch is applied.
const UNSET_REPLICAS: i64 = i32::MIN as i64;

/// Rejects a custom resource whose scale fields have other types than numbers and strings.
fn check_paths(object: &Object, resource: &Resource) -> Result<(), Status> {
    let paths = ScalePaths::for_resource(resource);
    let number = |path: &str| crd::find_typed(object, path, "int64", Value::is_i64);
    let text = |path: &str| crd::find_typed(object, path, "string", Value::is_string);
    number(&paths.spec_replicas)
        .and_then(|_| number(&paths.status_replicas))
        .and_then(|_| paths.selector.as_deref().map_or(Ok(None), text))
        .map(|_| ())
        .map_err(Status::without_reason)
}

/// The Scale of an object.
fn scale_of(object: &Object, resource: &Resource) -> Value {
    let paths = ScalePaths::for_resource(resource);
    let whole = object.clone().into_tree();
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.metadata().get(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let number = |pointer: &str| whole.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": number(&paths.status_replicas)},
    });
    // `spec.replicas` is left out when zero (Go's `omitempty`), `status.replicas` never.
    if number(&paths.spec_replicas) != 0 {
        scale["spec"]["replicas"] = number(&paths.spec_replicas).into();
    }
    let selector = match &paths.selector {
        Some(pointer) => whole
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        None if resource.is_custom => String::new(),
        None => selector_text(&whole["spec"]["selector"]),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A selector as text. A replication controller's is a plain map, others have `matchLabels` and `matchExpressions`.
fn selector_text(selector: &Value) -> String {
    let plain = selector
        .as_object()
        .is_some_and(|fields| fields.values().all(Value::is_string));
    let selector = if plain {
        json!({"matchLabels": selector})
    } else {
        selector.clone()
    };
    labels::Selector::from_json(&selector).to_string()
}

/// Sets a value at a pointer, and creates missing objects.
fn set_at(fields: &mut Map<String, Value>, pointer: &str, value: Value) {
    let mut parts = pointer.trim_start_matches('/').split('/').peekable();
    let mut target = fields;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            target.insert(part.to_owned(), value);
            return;
        }
        let inner = target.entry(part).or_insert_with(|| json!({}));
        if !inner.is_object() {
            *inner = json!({});
        }
        target = inner.as_object_mut().expect("set above");
    }
}
