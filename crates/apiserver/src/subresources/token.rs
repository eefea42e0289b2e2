//! `serviceaccounts/token`: issues tokens of a service account.

use serde_json::{Value, json};

use super::SubresourceRequest;
use crate::{
    auth::ISSUER,
    environment::rfc3339,
    object::Object,
    request::Target,
    schema::{FieldError, Problem},
    status::Status,
    storage::Key,
    verbs::{Answer, WriteVerbs},
};

/// The kind of the request.
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// The default and minimum lifetime of a token.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;

/// The lifetime that the kubelet requests, and the one that it gets instead.
const KUBELET_SECONDS: i64 = 3607;
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

/// Completes the metadata of a request with that of its service account, as admission sees it.
pub(super) fn complete(writes: &WriteVerbs, target: &Target, wanted: &mut Value) -> Result<(), Status> {
    let account = writes.store.current(target)?.object.decode()?;
    for key in ["name", "uid", "creationTimestamp"] {
        if wanted["metadata"][key].is_null()
            && let Some(value) = account.metadata().get(key)
        {
            wanted["metadata"][key] = value.clone();
        }
    }
    Ok(())
}

pub(super) fn request_token(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    wanted: &Value,
) -> Result<Answer, Status> {
    let target = request.target;
    let requested = |key: &str| wanted["metadata"][key].as_str().unwrap_or_default();
    if !requested("namespace").is_empty() && *requested("namespace") != *target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !requested("name").is_empty() && *requested("name") != *target.name {
        let why = "must match the service account name if specified";
        let problem = Problem::Invalid(requested("name").into(), why.into());
        let errors = [FieldError::new("metadata.name", problem)];
        return Err(Status::invalid(GROUP, KIND, &target.name, &errors));
    }
    let spec = &wanted["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let account = writes.store.current(target)?.object.decode()?;
    if !requested("uid").is_empty() && requested("uid") != account.meta("uid") {
        return Err(Status::token_conflict(
            &target.name,
            requested("uid"),
            account.meta("uid"),
        ));
    }
    let mut about = json!({
        "namespace": account.namespace(),
        "serviceaccount": {"name": account.name(), "uid": account.meta("uid")},
    });
    let bound = &spec["boundObjectRef"];
    if bound.is_object() {
        bind_token(writes, target, bound, &mut about)?;
    }
    let audiences = match &spec["audiences"] {
        Value::Array(list) if !list.is_empty() => spec["audiences"].clone(),
        _ => json!([ISSUER]),
    };
    let now = writes.store.environment.now();
    let later = |seconds: i64| now + std::time::Duration::from_secs(seconds.unsigned_abs());
    let expires = later(seconds);
    // The kubelet requests exactly this. Its pods may not reload expired tokens, so they get a year, and a warning.
    let mut end = expires;
    if seconds == KUBELET_SECONDS && about.get("pod").is_some() && audiences == json!([ISSUER]) {
        about["warnafter"] = expires.as_second().into();
        end = later(YEAR_SECONDS);
    }
    let token = writes.access.token_signer.sign(&json!({
        "aud": audiences,
        "exp": end.as_second(),
        "iat": now.as_second(),
        "iss": ISSUER,
        "jti": writes.store.environment.uid(),
        "kubernetes.io": about,
        "nbf": now.as_second(),
        "sub": format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
    }));
    let mut metadata = match &wanted["metadata"] {
        Value::Object(requested) => requested.clone(),
        _ => serde_json::Map::new(),
    };
    for (key, value) in [
        ("name", account.name()),
        ("namespace", account.namespace()),
        ("uid", account.meta("uid")),
        ("creationTimestamp", &writes.store.environment.now_rfc3339()),
    ] {
        metadata.insert(key.to_owned(), value.into());
    }
    Ok(Answer::from_value(
        201,
        &json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
        }),
    ))
}

/// Binds a token to an object: it becomes invalid when the object is deleted.
fn bind_token(writes: &WriteVerbs, target: &Target, bound: &Value, about: &mut Value) -> Result<(), Status> {
    let text = |key: &str| bound[key].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (plural, namespace) = match (text("apiVersion"), kind) {
        ("v1", "Pod") => ("pods", &*target.namespace),
        ("v1", "Secret") => ("secrets", &*target.namespace),
        ("v1", "Node") => ("nodes", ""),
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let catalogue = writes.store.registry.catalogue();
    let resource = catalogue.find("", "v1", plural).expect("built in");
    let entry = writes
        .store
        .storage
        .get(&resource.table, &Key::new(namespace, name));
    let object = entry
        .ok_or_else(|| Status::not_found(resource, name))?
        .object
        .decode()?;
    if kind == "Pod" && *object.text_at("spec.serviceAccountName") != *target.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            &*target.name
        )));
    }
    let uid = text("uid");
    if !uid.is_empty() && uid != object.meta("uid") {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::precondition(resource, name, &why));
    }
    about[kind.to_lowercase()] = reference(&object);
    let node = object.text_at("spec.nodeName");
    if kind == "Pod" && !node.is_empty() {
        let nodes = catalogue.find("", "v1", "nodes").expect("built in");
        let known = writes.store.storage.get(&nodes.table, &Key::new("", &node));
        let known = known.map(|entry| entry.object.decode()).transpose()?;
        about["node"] = known.as_ref().map_or_else(|| json!({"name": node}), reference);
    }
    Ok(())
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        _ if seconds > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let error = FieldError::new(
        "spec.expirationSeconds",
        Problem::Invalid(seconds.into(), why.into()),
    );
    Err(Status::invalid(GROUP, KIND, "", &[error]))
}

fn reference(object: &Object) -> Value {
    json!({"name": object.name(), "uid": object.meta("uid")})
}
