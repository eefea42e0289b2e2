//! `serviceaccounts/token`: a token with which a pod, or whoever acts for one, says who it is.

use serde_json::{Value, json};

use super::Request;
use crate::{
    auth::ISSUER,
    object::Object,
    request::Target,
    schema::{FieldError, Problem},
    status::Status,
    storage::Key,
    verbs::{Answer, Api},
    world::rfc3339,
};

/// What is asked for.
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// How long a token is good for where the client does not say, and at least.
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;

/// What the kubelet asks for, and what it gets instead.
const KUBELET_SECONDS: i64 = 3607;
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

impl Api {
    pub(super) fn request_token(&self, request: Request<'_>, wanted: &Value) -> Result<Answer, Status> {
        let target = request.target;
        let said = |key: &str| wanted["metadata"][key].as_str().unwrap_or_default();
        if !said("namespace").is_empty() && *said("namespace") != *target.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !said("name").is_empty() && *said("name") != *target.name {
            let why = "must match the service account name if specified";
            let problem = Problem::Invalid(said("name").into(), why.into());
            let errors = [FieldError::new("metadata.name", problem)];
            return Err(Status::invalid(GROUP, KIND, &target.name, &errors));
        }
        let spec = &wanted["spec"];
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
        check_seconds(seconds)?;
        let account = self.current(target)?.object.decode()?;
        if !said("uid").is_empty() && said("uid") != account.meta("uid") {
            return Err(Status::token_conflict(
                &target.name,
                said("uid"),
                account.meta("uid"),
            ));
        }
        let mut about = json!({
            "namespace": account.namespace(),
            "serviceaccount": {"name": account.name(), "uid": account.meta("uid")},
        });
        let bound = &spec["boundObjectRef"];
        if bound.is_object() {
            self.bind_token(target, bound, &mut about)?;
        }
        let audiences = match &spec["audiences"] {
            Value::Array(list) if !list.is_empty() => spec["audiences"].clone(),
            _ => json!([ISSUER]),
        };
        let now = self.world.now();
        let later = |seconds: i64| now + std::time::Duration::from_secs(seconds.unsigned_abs());
        let expires = later(seconds);
        // The kubelet asks for exactly this, for pods that may have been written before tokens ended: they are given a year
        // and a warning.
        let mut end = expires;
        if seconds == KUBELET_SECONDS && about.get("pod").is_some() && audiences == json!([ISSUER]) {
            about["warnafter"] = expires.as_second().into();
            end = later(YEAR_SECONDS);
        }
        let token = self.guard.signatures.sign(&json!({
            "aud": audiences,
            "exp": end.as_second(),
            "iat": now.as_second(),
            "iss": ISSUER,
            "jti": self.world.uid(),
            "kubernetes.io": about,
            "nbf": now.as_second(),
            "sub": format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
        }));
        let mut metadata = match &wanted["metadata"] {
            Value::Object(said) => said.clone(),
            _ => serde_json::Map::new(),
        };
        for (key, value) in [
            ("name", account.name()),
            ("namespace", account.namespace()),
            ("uid", account.meta("uid")),
            ("creationTimestamp", &self.world.now_text()),
        ] {
            metadata.insert(key.to_owned(), value.into());
        }
        Ok(Answer::value(
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

    /// Ties a token to an object: it is worth nothing once that is gone.
    fn bind_token(&self, target: &Target, bound: &Value, about: &mut Value) -> Result<(), Status> {
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
        let catalogue = self.registry.catalogue();
        let resource = catalogue.find("", "v1", plural).expect("built in");
        let entry = self.storage.get(&resource.table, &Key::new(namespace, name));
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
            let known = self.storage.get(&nodes.table, &Key::new("", &node));
            let known = known.map(|entry| entry.object.decode()).transpose()?;
            about["node"] = known.as_ref().map_or_else(|| json!({"name": node}), reference);
        }
        Ok(())
    }
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        ..LEAST_SECONDS => "may not specify a duration less than 10 minutes",
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
