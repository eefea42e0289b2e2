//! Rules of the Kubernetes API that clients and servers share.
//!
//! - [`conditions`]: looks up conditions in a status.
//! - [`field_error`]: errors of fields with the messages of a server.
//! - [`fields`] and [`labels`]: selectors.
//! - [`naming`]: the rules for names, label keys and label values.
//! - [`quantity`]: exact amounts such as `250m` or `1Gi`.
//! - [`request`]: the reading of a request's method, path and query.
//! - [`status`]: what the status of a failed request means.
//!
//! Everything is a pure function or a plain value: the crate does no I/O, and knows nothing about queues, caches,
//! controllers or servers. Messages that a server sends are those of kube-apiserver.
//!
//! The feature `kube` adds conversions from the types of `kube` and `k8s-openapi`; without it, the crate depends on
//! neither.

pub mod conditions;
pub mod field_error;
pub mod fields;
pub mod labels;
pub mod naming;
pub mod quantity;
pub mod request;
pub mod status;
