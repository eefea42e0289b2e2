//! A Kubernetes API server inside the process.
//!
//! ```text
//!   http::Request ─► auth ─► Route, Query ─► verbs ─► Storage
//!                     │         ▲              │         │ one revision, history
//!           users, roles,   Catalogue          │         ▼
//!           bindings        built-in + CRDs    └──► Body: bytes, list pieces, watch frames
//! ```
//!
//! [`Server`] is a [`tower::Service`] first, so that a `kube::Client` sits on it without a socket, and an HTTPS
//! server second ([`Server::serve`]). All kinds, built-in or defined by a CRD, go through the same verbs: a kind is
//! data (a schema, a few facts) and never a handler of its own. Objects are JSON trees while a request works on them
//! and shared bytes otherwise.
//!
//! Who owns what: the storage owns objects and history; the registry owns what is served; a watch owns nothing but a
//! cursor. Time and chance come from outside ([`Server::seeded`], [`Builder::epoch`], tokio's clock).
//!
//! Everybody may do everything, as themselves, unless [`Builder::rbac`] makes the server look at what roles and bindings
//! allow them, with the roles that every cluster begins with. Who comes through a socket ([`Server::serve`],
//! [`Server::guarded`]) is who their credentials prove. Whoever holds a [`Server`] in the process is its administrator;
//! [`Server::as_user`] is somebody else. [`Limits`] bounds what all of them can make it hold.
//!
//! The crate knows nothing of controllers, nodes or what any kind is good for.
//!
//! What it does not do yet: **rules in CEL**. A CRD with `x-kubernetes-validations` is accepted, and the rules are stored
//! and published, but objects are not held to them. Nor are conversion webhooks called.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tower::ServiceExt;
//!
//! let server = windlass_apiserver::Server::new();
//! let request = http::Request::get("/api/v1/namespaces/default").body(String::new())?;
//! let response = server.oneshot(request).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```

mod accept;
mod admission;
mod auth;
mod body;
mod crd;
mod defaults;
mod depth;
mod discovery;
mod encode;
mod fields;
mod golang;
mod gzip;
mod https;
mod internals;
mod json;
mod limits;
mod listing;
mod logs;
mod media;
mod naming;
mod object;
mod openapi;
mod particular;
mod patch;
mod pick;
pub mod protobuf;
mod registry;
mod request;
mod rules;
mod schema;
mod scratch;
mod selector;
mod server;
mod status;
pub mod storage;
mod strategies;
mod subresources;
mod trail;
mod validation;
mod verbs;
mod versions;
mod view;
mod warnings;
mod world;
mod yaml;

pub use auth::User;
pub use body::Body;
pub use https::Tls;
pub use limits::Limits;
pub use logs::Logs;
pub use object::Encoded;
pub use server::{Builder, Server};
