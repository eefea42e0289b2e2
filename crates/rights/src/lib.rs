//! RBAC rules, and the rights that a program uses.
//!
//! ```text
//!   http::Request ─► Access (verb, group, resource, namespace, name | path) ◄── allows ── Rule
//!         │
//!   Recorder (a tower layer) ─► AccessRecords ─► Rights: the minimal rules
//!                                            └─► unused: rules that were granted and never used
//! ```
//!
//! [`Access`] is the part of a request that an authorizer decides about, parsed as kube-apiserver does: from method, path
//! and query alone, without knowing which resources are served. [`Rule`] is RBAC's `PolicyRule` and has its JSON form. [`Recorder`] is a [`tower::Layer`] for a `kube::Client`'s service on any cluster, or for the
//! embedded server, where it also knows the user.
//!
//! ```
//! use windlass_rights::{Access, Recorder, Rule};
//!
//! let recorder = Recorder::new();
//! // … run the program with `recorder.layer("robot")` in its client; two requests are enough here.
//! for path in ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/x"] {
//!     recorder.record("robot", &Access::of(&http::Method::GET, path, None));
//! }
//! let records = recorder.records().for_user("robot");
//! assert_eq!(records.rights().namespaces["a"], [Rule::for_resources(["get", "list"], [""], ["pods"])]);
//!
//! let granted = [Rule::for_resources(["get", "list", "delete"], [""], ["pods"])];
//! assert_eq!(records.unused(&granted), [Rule::for_resources(["delete"], [""], ["pods"])]);
//! ```
//!
//! The crate does not know about authentication, role bindings or any server.

mod access_records;
mod coverage;
mod recorder;
mod rule;

pub use access_records::{AccessRecord, AccessRecords, Names, Rights};
pub use coverage::{CoverageLimits, MissingRules};
pub use recorder::{Recorder, RecorderLayer, RecorderService};
pub use rule::{Rule, compact_rules, missing};
pub use windlass_api::request::{Access, AccessTarget};
