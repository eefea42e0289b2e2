//! Parts of objects with verbs of their own: scale, binding, eviction, log, token.
//!
//! `status` is not among them: it is the object itself with other fields kept, and goes the way of every update.

mod binding;
mod eviction;
mod log;
mod scale;
mod token;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    media::Encoding,
    patch::PatchKind,
    registry::Resource,
    request::{Target, Verb},
    status::Status,
    verbs::{Answer, Api, WriteOptions, decode_part},
};

pub(crate) use log::has_log;
pub(crate) use scale::ScalePaths;

/// The body of a request for a subresource, read as far as its verb says.
pub(crate) enum Input {
    None,
    Object(Bytes, Encoding),
    Patch(Bytes, PatchKind),
}

/// A request for a part of an object, as its handler needs it.
#[derive(Clone, Copy)]
struct Request<'a> {
    target: &'a Target,
    options: &'a WriteOptions,
}

impl Request<'_> {
    /// Refuses a body that is about an object of another name than the target's.
    fn check_name(&self, body: &Value, kind: &str) -> Result<(), Status> {
        match body.pointer("/metadata/name").and_then(Value::as_str) {
            None | Some("") => Ok(()),
            Some(name) if *name == *self.target.name => Ok(()),
            Some(_) => Err(Status::bad_request(format!(
                "name in URL does not match name in {kind} object"
            ))),
        }
    }
}

impl Api {
    /// A verb on a part of an object.
    pub(crate) fn subresource(
        &self,
        target: &Target,
        verb: Verb,
        options: &WriteOptions,
        input: &Input,
    ) -> Result<Answer, Status> {
        let request = Request { target, options };
        match (&*target.subresource, verb, input) {
            ("scale", Verb::Get, _) => self.get_scale(target),
            ("scale", Verb::Patch, Input::Patch(body, kind)) => self.patch_scale(request, body, *kind),
            (part, _, Input::Object(body, encoding)) => {
                let (group, kind, handle): (_, _, Handler) = match (part, verb) {
                    ("scale", Verb::Update) => ("autoscaling", "Scale", Self::update_scale),
                    ("binding", Verb::Create) => ("", "Binding", Self::bind),
                    ("eviction", Verb::Create) => ("policy", "Eviction", Self::evict),
                    ("token", Verb::Create) => ("authentication.k8s.io", "TokenRequest", Self::request_token),
                    _ => return Err(Status::no_such_resource()),
                };
                let validation = options.field_validation;
                let (wanted, remarks) = decode_part((group, kind), body, *encoding, validation)?;
                match handle(self, request, &wanted) {
                    Ok(answer) => Ok(answer.with_warnings(&remarks)),
                    Err(status) => Err(status.with_warnings(&remarks)),
                }
            }
            _ => Err(Status::no_such_resource()),
        }
    }
}

/// What acts on the body of a request for a part of an object.
type Handler = fn(&Api, Request<'_>, &Value) -> Result<Answer, Status>;

/// Whether the resource is the collection from before `pods/binding` was a subresource.
pub(crate) fn is_binding(resource: &Resource) -> bool {
    (&*resource.group, &*resource.plural) == ("", "bindings")
}

/// The answer of subresources that do something and have nothing to show for it.
fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
