//! The reading of a request's method, path and query, as by kube-apiserver.
//!
//! ```text
//!   method, path, query ─► RequestInfo ─┬─► Access (verb, group, resource, namespace, name | path): what RBAC decides about
//!                                       └─► Query: parameters, with Go's rules for booleans, numbers and repetition
//! ```
//!
//! The server routes by it, its authorizer decides by it, and clients find out with it what they are about to write. It is
//! the only parser of a request line, so no request is executed as anything else than what was authorized.

mod access;
mod info;
mod query;

pub use access::{Access, AccessTarget};
pub use info::{PathVerb, RequestInfo};
pub use query::{InvalidNumber, Query};
