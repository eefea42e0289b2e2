//! A Kubernetes API server inside the process.
//!
//! ```text
//!   http::Request ─► auth ─► Route, Query ─► verbs ─► Storage
//!                     │         ▲              │         │ one revision, history
//!           users, roles,   Catalogue          │         ▼
//!           bindings        built-in + CRDs    └──► Body: bytes, list pieces, watch frames
//! ```
//!
//! [`Server`] is a [`tower::Service`], so a `kube::Client` can use it without a socket, and also an HTTPS server
//! ([`Server::serve`]). All kinds, built-in or defined by a CRD, go through the same verbs: a kind is data (a schema and
//! a few properties), not a handler. Objects are JSON trees while a request changes them and shared bytes otherwise.
//!
//! The storage owns objects and history, the registry owns the served resources, and a watch owns only a cursor. Time and
//! randomness are injected ([`Server::seeded`], [`Builder::epoch`], tokio's clock).
//!
//! Code that holds a [`Server`] in the process is its administrator; [`Server::as_user`] acts as another user. On a socket
//! ([`Server::serve`]) and with [`Server::authenticated`], users must authenticate. Every user may do everything, unless
//! [`Builder::rbac`] enables roles and bindings, including those that every cluster has. [`Limits`] bounds what clients
//! can make the server hold.
//!
//! The crate contains no controllers and does not depend on what any kind is used for.
//!
//! Webhooks are called over HTTPS, at [`Builder::webhook_address`] for a service, or without a socket
//! ([`Builder::webhook`]).
//!
//! Not supported yet: aggregated APIs, exec, attach and port-forward. [`Builder::announce_limitations`] warns clients that
//! install what is not supported.
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
mod admission_plugins;
mod auth;
mod body;
mod conversion;
mod crd;
mod depth;
mod discovery;
mod encode;
mod environment;
mod field_path;
mod fields;
mod golang;
mod gzip;
mod https;
mod internal_types;
mod json;
mod kinds;
mod large_work;
mod limitations;
mod limits;
mod listing;
mod logs;
mod media;
mod object;
mod object_store;
mod openapi;
mod patch;
mod permits;
mod pick;
pub mod protobuf;
mod registry;
mod request;
mod request_metrics;
mod schema;
mod scratch;
mod selector;
mod server;
mod status;
pub mod storage;
mod subresources;
mod validation;
mod verbs;
mod view;
mod warnings;
mod webhook;
mod yaml;

pub use admission::{ExpressionWarning, PolicyTypes, schema_of_kind};
pub use admission_plugins::AdmissionPlugin;
pub use auth::{AuthorizationMode, User};
pub use body::Body;
pub use https::Tls;
pub use limitations::Limitation;
pub use limits::Limits;
pub use logs::Logs;
pub use object::Encoded;
pub use server::{Builder, Server};
pub use webhook::InProcessWebhook;
