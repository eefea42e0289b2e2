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
    verbs::{Answer, Api, WriteOptions},
};

pub(crate) use scale::ScalePaths;

/// The body of a request for a subresource, read as far as its verb says.
pub(crate) enum Input {
    None,
    Object(Bytes, Encoding),
    Patch(Bytes, PatchKind),
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
        match (&*target.subresource, verb, input) {
            ("scale", Verb::Get, _) => self.get_scale(target),
            ("scale", Verb::Update, Input::Object(body, encoding)) => {
                self.update_scale(target, options, body, *encoding)
            }
            ("scale", Verb::Patch, Input::Patch(body, kind)) => {
                self.patch_scale(target, options, body, *kind)
            }
            ("binding", Verb::Create, Input::Object(body, encoding)) => {
                self.bind(target, options, body, *encoding)
            }
            ("eviction", Verb::Create, Input::Object(body, encoding)) => {
                self.evict(target, options, body, *encoding)
            }
            ("token", Verb::Create, Input::Object(body, encoding)) => {
                self.request_token(target, body, *encoding)
            }
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
