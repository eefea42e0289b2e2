//! Subresources with their own handlers: scale, binding, eviction, log, token.
//!
//! `status` is handled like an update of the object, which keeps all other fields.

mod binding;
mod eviction;
mod log;
mod scale;
mod token;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    admission::{Admitted, Operation},
    media::Encoding,
    object_store::ObjectStore,
    patch::PatchKind,
    registry::Resource,
    request::{Query, Target, Verb},
    status::Status,
    verbs::{Answer, WriteOptions, WriteVerbs, decode_subresource},
};

pub(crate) use binding::bind_by_name;
pub(crate) use log::log;
pub(crate) use scale::ScalePaths;

/// The undecoded body of a request for a subresource.
pub(crate) enum SubresourceBody {
    None,
    Object(Bytes, Encoding),
    Patch(Bytes, PatchKind),
}

/// A request for a subresource.
#[derive(Clone, Copy)]
struct SubresourceRequest<'a> {
    target: &'a Target,
    options: &'a WriteOptions,
}

impl SubresourceRequest<'_> {
    /// Rejects a body whose name is not the target's.
    fn check_name(&self, body: &Value, kind: &str) -> Result<(), Status> {
        let given = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = given("/metadata/namespace");
        if !namespace.is_empty() && *namespace != *self.target.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if *given("/metadata/name") != *self.target.name {
            return Err(Status::bad_request(format!(
                "name in URL does not match name in {kind} object"
            )));
        }
        Ok(())
    }
}

/// The size of the objects that a request reads besides its own, in bytes: the size of its work.
pub(crate) fn scanned_bytes(store: &ObjectStore, target: &Target) -> usize {
    match &*target.subresource {
        "eviction" => eviction::budget_bytes(store, target),
        _ => 0,
    }
}

/// Handles a request for a subresource.
pub(crate) fn subresource(
    writes: &WriteVerbs,
    target: &Target,
    verb: Verb,
    options: &WriteOptions,
    input: &SubresourceBody,
) -> Result<Answer, Status> {
    subresource_as(writes, (target, None), verb, options, input)
}

/// Handles a request for a subresource, which admission may see as another target.
fn subresource_as(
    writes: &WriteVerbs,
    (target, admitted_as): (&Target, Option<&Target>),
    verb: Verb,
    options: &WriteOptions,
    input: &SubresourceBody,
) -> Result<Answer, Status> {
    let request = SubresourceRequest { target, options };
    match (&*target.subresource, verb, input) {
        ("scale", Verb::Get, _) => scale::get_scale(&writes.store, target, options.caller.as_deref()),
        ("scale", Verb::Patch, SubresourceBody::Patch(body, kind)) => {
            scale::patch_scale(writes, request, body, *kind)
        }
        (part, _, SubresourceBody::Object(body, encoding)) => {
            let (group, kind, handle): (_, _, Handler) = match (part, verb) {
                ("scale", Verb::Update) => ("autoscaling", "Scale", scale::update_scale),
                ("binding", Verb::Create) => ("", "Binding", binding::bind),
                ("eviction", Verb::Create) => ("policy", "Eviction", eviction::evict),
                ("token", Verb::Create) => ("authentication.k8s.io", "TokenRequest", token::request_token),
                _ => return Err(Status::no_such_resource()),
            };
            let validation = options.field_validation;
            let (mut wanted, mut warnings) = decode_subresource((group, kind), body, *encoding, validation)?;
            if verb == Verb::Create {
                // A binding may come from the collection of bindings.
                let admitted = Admitted::write(admitted_as.unwrap_or(target), Operation::Create, options);
                if !target.namespace.is_empty() && wanted["metadata"]["namespace"].is_null() {
                    wanted["metadata"]["namespace"] = (*target.namespace).into();
                }
                if part == "token" {
                    token::complete(writes, target, &mut wanted)?;
                }
                wanted = writes.admission.admit_part(&admitted, wanted, &mut warnings)?;
            }
            match handle(writes, request, &wanted) {
                Ok(answer) => Ok(answer.with_warnings(&warnings)),
                Err(status) => Err(status.with_warnings(&warnings)),
            }
        }
        _ => Err(Status::no_such_resource()),
    }
}

/// The subresources that a real server forwards to a kubelet or to a pod.
const FORWARDED: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// Whether a request for a subresource needs a connection to a node or a pod.
pub(crate) fn is_forwarded(subresource: &str) -> bool {
    FORWARDED.contains(&subresource)
}

/// The options of a connection, as admission sees them: from the query, and the path behind `proxy`.
pub(crate) fn connection_options(subresource: &str, query: &Query, path: &str) -> Value {
    let mut options = json!({"metadata": {}});
    match subresource {
        "proxy" => {
            if !path.is_empty() {
                options["path"] = path.into();
            }
        }
        "portforward" => {
            let ports = query.all("ports").iter().flat_map(|ports| ports.split(','));
            let ports: Vec<u16> = ports.filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        _ => {
            for key in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(key) {
                    options[key] = true.into();
                }
            }
            if let Some(container) = query.text("container").filter(|name| !name.is_empty()) {
                options["container"] = container.into();
            }
            let command = query.all("command");
            if subresource == "exec" && !command.is_empty() {
                options["command"] = json!(command);
            }
        }
    }
    options
}

/// Rejects a request that needs a connection to a node or a pod.
pub(crate) fn reject_forwarded(plural: &str, subresource: &str) -> Result<(), Status> {
    if !is_forwarded(subresource) {
        return Ok(());
    }
    Err(Status::not_implemented(format!(
        "{plural}/{subresource} is not available: this server has no connection to nodes, and simulated pods run no \
         processes; `kubectl logs` and the pod's status are available"
    )))
}

/// Handles the decoded body of a request for a subresource.
type Handler = fn(&WriteVerbs, SubresourceRequest<'_>, &Value) -> Result<Answer, Status>;

/// Whether the resource is `bindings`, the collection that predates `pods/binding`.
pub(crate) fn is_binding(resource: &Resource) -> bool {
    (&*resource.group, &*resource.plural) == ("", "bindings")
}

/// The answer of subresources that return no object.
fn created_status() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
