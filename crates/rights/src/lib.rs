//! What a request needs, what a rule grants, and which rights a program really uses.
//!
//! ```text
//!   http::Request ─► Access (verb, group, resource, namespace, name | path) ◄── allows ── Rule
//!         │
//!   Recorder (a tower layer) ─► Uses ─► Rights: the least rules that would have done
//!                                    └► unused: what was granted and never needed
//! ```
//!
//! [`RequestInfo`] reads a request as a Kubernetes API server does: from method, path and query alone, before anything is
//! known of what is served. [`Access`] is the part of it that an authoriser decides about. [`Rule`] is RBAC's `PolicyRule`, and reads and writes as its JSON. [`Recorder`] is
//! a [`tower::Layer`]: it sits in front of a `kube::Client`'s service, whatever cluster is behind it, or inside the
//! embedded server, where it also knows who asks.
//!
//! ```
//! use windlass_rights::{Access, Recorder, Rule};
//!
//! let recorder = Recorder::new();
//! // … run the program with `recorder.layer("robot")` in its client; here two requests are enough.
//! for path in ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/x"] {
//!     recorder.note("robot", &Access::of(&http::Method::GET, path, None));
//! }
//! let rights = recorder.uses().of("robot").rights();
//! assert_eq!(rights.namespaces["a"], [Rule::on(["get", "list"], [""], ["pods"])]);
//!
//! let granted = [Rule::on(["get", "list", "delete"], [""], ["pods"])];
//! assert_eq!(recorder.uses().of("robot").unused(&granted), [Rule::on(["delete"], [""], ["pods"])]);
//! ```
//!
//! The crate knows nothing of users' proofs, of bindings or of any server.

mod access;
mod coverage;
mod field_selector;
mod query;
mod recorder;
mod request_info;
mod rule;
mod uses;

pub use access::{Access, Object};
pub use coverage::{Limits, Missing};
pub use field_selector::FieldTerm;
pub use query::{InvalidNumber, Query};
pub use recorder::{Recorder, RecorderLayer, RecorderService};
pub use request_info::{PathVerb, RequestInfo};
pub use rule::{Rule, compact, missing};
pub use uses::{Names, Rights, Use, Uses};
