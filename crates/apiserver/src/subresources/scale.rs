//! `scale`: how many there should be, whatever the kind.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Request;
use crate::{
    crd,
    object::Object,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    schema::{FieldError, Problem},
    selector::LabelSelector,
    status::Status,
    verbs::{Answer, Api, Configuration, Generation},
};

/// Where a kind keeps what its scale shows, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) wanted: String,
    pub(crate) actual: String,
    /// Custom kinds keep the selector as text; built-in ones have it in `spec.selector`.
    pub(crate) selector: Option<String>,
}

impl ScalePaths {
    /// From a CRD's `subresources.scale`.
    pub(crate) fn of_crd(scale: &Value) -> Option<Self> {
        let pointer = |key: &str| Some(scale.get(key)?.as_str()?.replace('.', "/"));
        Some(Self {
            wanted: pointer("specReplicasPath")?,
            actual: pointer("statusReplicasPath")?,
            selector: pointer("labelSelectorPath").filter(|path| !path.is_empty()),
        })
    }

    fn of(resource: &Resource) -> Self {
        resource.scale.clone().unwrap_or_else(|| Self {
            wanted: "/spec/replicas".to_owned(),
            actual: "/status/replicas".to_owned(),
            selector: None,
        })
    }
}

impl Api {
    pub(super) fn get_scale(&self, target: &Target) -> Result<Answer, Status> {
        let object = self.current(target)?.object.decode()?;
        let resource = &target.resource;
        if resource.custom {
            check_paths(&object, resource)?;
            let paths = ScalePaths::of(resource);
            if Value::Object(object.fields().clone())
                .pointer(&paths.wanted)
                .is_none()
            {
                return Err(Status::internal(format!(
                    "the spec replicas field {:?} does not exist",
                    paths.wanted.replace('/', ".")
                )));
            }
        }
        Ok(Answer::value(200, &scale(&object, resource)))
    }

    pub(super) fn update_scale(&self, request: Request<'_>, wanted: &Value) -> Result<Answer, Status> {
        self.set_scale(request, |_| Ok(wanted.clone()))
    }

    pub(super) fn patch_scale(
        &self,
        request: Request<'_>,
        body: &Bytes,
        kind: PatchKind,
    ) -> Result<Answer, Status> {
        if kind == PatchKind::Apply {
            return self.apply_scale(request, body);
        }
        let (patch, _) = kind.decode(body)?;
        self.set_scale(request, |mut scale| {
            // A scale has no lists: a strategic merge of it is a plain one.
            patch.apply(None, &mut scale)?;
            Ok(scale)
        })
    }

    /// Applies a configuration of the scale.
    fn apply_scale(&self, request: Request<'_>, body: &Bytes) -> Result<Answer, Status> {
        let Request { target, options } = request;
        let resource = &target.resource;
        let config = Configuration::read(body)?.config;
        let changed = self.modify(target, options, Generation::Counts, |object| {
            let (current, unset) = current(object, resource)?;
            let (wanted, account) =
                self.applied_scale(resource, options, object.account(), &current, &config)?;
            take(object, target, &wanted, unset)?;
            object.set_account(account);
            Ok(())
        })?;
        Ok(Answer::value(200, &scale(&changed, resource)))
    }

    /// Writes the number that `change` makes of the current scale into the object.
    fn set_scale(
        &self,
        request: Request<'_>,
        change: impl Fn(Value) -> Result<Value, Status>,
    ) -> Result<Answer, Status> {
        let (target, options) = (request.target, request.options);
        let resource = &target.resource;
        let changed = self.modify(target, options, Generation::Counts, |object| {
            let (current, unset) = current(object, resource)?;
            let before = scale(object, resource);
            take(object, target, &change(current)?, unset)?;
            let after = scale(object, resource);
            let account = self.account_for_scale(resource, options, object.account(), [&before, &after]);
            object.set_account(account);
            Ok(())
        })?;
        Ok(Answer::value(200, &scale(&changed, resource)))
    }
}

/// The scale of an object as a change begins with it, and whether the object says no number.
fn current(object: &Object, resource: &Resource) -> Result<(Value, bool), Status> {
    let mut current = scale(object, resource);
    let unset = resource.custom && object.tree().pointer(&ScalePaths::of(resource).wanted).is_none();
    if unset {
        check_paths(object, resource)?;
        current["spec"]["replicas"] = UNSET.into();
    }
    Ok((current, unset))
}

/// Writes the number that a scale asks for into its object.
fn take(object: &mut Object, target: &Target, wanted: &Value, unset: bool) -> Result<(), Status> {
    let resource = &target.resource;
    let paths = ScalePaths::of(resource);
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    if !name.is_empty() && *name != *target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let said = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !said.is_empty() && said != object.meta("resourceVersion") {
        return Err(Status::modified(resource, &target.name));
    }
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if unset && replicas == UNSET {
        return Err(Status::bad_request(format!(
            "the spec replicas field {:?} cannot be empty",
            paths.wanted.replace('/', ".")
        )));
    }
    // A custom resource is checked as a whole, in other words.
    if replicas < 0 && !resource.custom {
        let problem = Problem::Invalid(replicas.into(), "must be greater than or equal to 0".into());
        let errors = [FieldError::new("spec.replicas", problem)];
        return Err(Status::invalid("autoscaling", "Scale", &target.name, &errors));
    }
    set(object.fields_mut(), &paths.wanted, replicas.into());
    Ok(())
}

/// The number that stands for none while a patch is applied.
const UNSET: i64 = i32::MIN as i64;

/// Refuses to show a scale of fields that are no numbers and texts.
fn check_paths(object: &Object, resource: &Resource) -> Result<(), Status> {
    let paths = ScalePaths::of(resource);
    let number = |path: &str| crd::find(object, path, "int64", Value::is_i64);
    let text = |path: &str| crd::find(object, path, "string", Value::is_string);
    number(&paths.wanted)
        .and_then(|_| number(&paths.actual))
        .and_then(|_| paths.selector.as_deref().map_or(Ok(None), text))
        .map(|_| ())
        .map_err(Status::unexplained)
}

/// What the scale of an object shows.
fn scale(object: &Object, resource: &Resource) -> Value {
    let paths = ScalePaths::of(resource);
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
        "status": {"replicas": number(&paths.actual)},
    });
    // The wanted number is left out when it is zero, the actual one never: Go's `omitempty`.
    if number(&paths.wanted) != 0 {
        scale["spec"]["replicas"] = number(&paths.wanted).into();
    }
    let selector = match &paths.selector {
        Some(pointer) => whole
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        None if resource.custom => String::new(),
        None => selector_text(&whole["spec"]["selector"]),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A replication controller's selector is a plain map; the others' have `matchLabels` and `matchExpressions`.
fn selector_text(selector: &Value) -> String {
    let plain = selector
        .as_object()
        .is_some_and(|fields| fields.values().all(Value::is_string));
    let selector = if plain {
        json!({"matchLabels": selector})
    } else {
        selector.clone()
    };
    LabelSelector::of(&selector).to_string()
}

/// Sets a value at a pointer, making the objects on the way.
fn set(fields: &mut Map<String, Value>, pointer: &str, value: Value) {
    let mut parts = pointer.trim_start_matches('/').split('/').peekable();
    let mut place = fields;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            place.insert(part.to_owned(), value);
            return;
        }
        let inner = place.entry(part).or_insert_with(|| json!({}));
        if !inner.is_object() {
            *inner = json!({});
        }
        place = inner.as_object_mut().expect("made one above");
    }
}
