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
    media::{self, Encoding},
    patch::PatchKind,
    registry::Resource,
    request::{Target, Verb},
    status::Status,
    verbs::{Answer, Api, WriteOptions, check_body_kind},
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
    body: &'a Bytes,
}

impl Request<'_> {
    /// The body, which must be of this kind if it says one.
    fn read(&self, encoding: Encoding, group: &str, kind: &str) -> Result<Value, Status> {
        let body = media::decode(self.body, encoding, kind)?;
        check_body_kind(&body, group, kind)?;
        Ok(body)
    }

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
        let of = |body| Request {
            target,
            options,
            body,
        };
        match (&*target.subresource, verb, input) {
            ("scale", Verb::Get, _) => self.get_scale(target),
            ("scale", Verb::Update, Input::Object(body, encoding)) => self.update_scale(of(body), *encoding),
            ("scale", Verb::Patch, Input::Patch(body, kind)) => self.patch_scale(of(body), *kind),
            ("binding", Verb::Create, Input::Object(body, encoding)) => self.bind(of(body), *encoding),
            ("eviction", Verb::Create, Input::Object(body, encoding)) => self.evict(of(body), *encoding),
            ("token", Verb::Create, Input::Object(body, encoding)) => self.request_token(of(body), *encoding),
            _ => Err(Status::no_such_resource()),
        }
    }
}

/// Whether the resource is the collection from before `pods/binding` was a subresource.
pub(crate) fn is_binding(resource: &Resource) -> bool {
    (&*resource.group, &*resource.plural) == ("", "bindings")
}

/// The answer of subresources that do something and have nothing to show for it.
fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
