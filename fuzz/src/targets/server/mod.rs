//! The embedded API server with one kind of request.
//!
//! An input is a request (or several, see `requests`) in the syntax of HTTP/1.1: a line with method and target, headers,
//! an empty line, the body.
//! Before a request for an object named `fuzz`, that object is created from a recorded one of its kind. After the
//! request, the object is checked against the invariants and deleted. So an input does not depend on earlier ones.

mod parameters;
mod policies;
mod readable;
mod request;
mod requests;
mod schemas;
mod seeds;
mod test_server;
mod tokens;
mod webhooks;
mod writes;

use crate::engine::Target;

pub(super) fn make(name: &str) -> Option<Box<dyn Target>> {
    Some(match name {
        "json" => Box::new(writes::Writes::new(seeds::json)),
        "yaml" => Box::new(writes::Writes::new(seeds::yaml)),
        "protobuf" => Box::new(writes::Writes::new(seeds::protobuf)),
        "json-patch" => Box::new(writes::Writes::new(seeds::json_patch)),
        "merge-patch" => Box::new(writes::Writes::new(seeds::merge_patch)),
        "strategic-merge-patch" => Box::new(writes::Writes::new(seeds::strategic_merge_patch)),
        "apply" => Box::new(writes::Writes::new(seeds::apply)),
        "managed-fields" => Box::new(writes::Writes::new(seeds::managed_fields)),
        "schemas" => Box::new(schemas::Schemas::new()),
        "selectors" => Box::new(parameters::Parameters::selectors()),
        "list-parameters" => Box::new(parameters::Parameters::lists()),
        "requests" => Box::new(requests::Requests::new()),
        "webhooks" => Box::new(webhooks::Webhooks::new()),
        "policies" => Box::new(policies::Policies::new()),
        "tokens" => Box::new(tokens::Tokens::new()),
        _ => return None,
    })
}
