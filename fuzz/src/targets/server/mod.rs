//! The embedded API server behind one kind of request.
//!
//! An input is a request as HTTP/1.1 writes it: a line with method and target, headers, an empty line, the body. Before a
//! request for an object named `fuzz` is sent, that object is created from what is known of its kind; after it, whatever is
//! there is held to the laws and deleted. So an input does not depend on those before it.

mod ask;
mod parameters;
mod readable;
mod request;
mod schemas;
mod seeds;
mod tokens;
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
        "tokens" => Box::new(tokens::Tokens::new()),
        _ => return None,
    })
}
