//! Kubernetes' CEL: the expressions of validation rules and admission policies.
//!
//! ```text
//!   text ─► parse ─► check ─► plan ─► Program ──evaluate──► Value + cost
//!             │        │        │
//!          Issues   types    estimate (cost bounds)
//! ```
//!
//! An [`Env`] has the variables and the functions; [`Env::compile`] makes a [`Program`], which is checked like
//! kube-apiserver checks it, with the same messages, and knows its estimated cost. A program is evaluated over borrowed
//! JSON ([`Schema::value`], [`Value::from_json`]): only what an expression touches is converted. Evaluation counts the
//! cost, and ends at a limit or when it is cancelled.
//!
//! ```
//! use serde_json::json;
//! use windlass_cel::{Env, Type, Value};
//!
//! let mut env = Env::kubernetes();
//! env.declare("object", Type::Dyn);
//! let program = env.compile("object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))").unwrap();
//!
//! let pod = json!({"spec": {"containers": [{"image": "registry.example.com/web:1"}]}});
//! let variables = [Value::from_json(&pod)];
//! let result = program.evaluate(&variables);
//! assert!(matches!(result.value, Ok(Value::Bool(true))));
//! assert_eq!(result.cost, 12);
//! ```
//!
//! Expressions and data may be hostile. cel-go's cost does not know how large a value is, or how long a step takes, so an
//! evaluation has [`Limits`] of its steps and bytes too, far above what ordinary expressions use. A host shares a [`Budget`]
//! between the evaluations of a request, and a [`CompileBudget`] between the expressions of a policy.
//!
//! The crate knows nothing about HTTP, the API server or clusters, and does no I/O. The host implements [`Authorizer`] for
//! `authorizer`, [`HostObject`] for objects that are not JSON, and [`LazyFields`] for variables that are computed on demand.

mod assign;
mod ast;
mod bounds;
mod budget;
mod check;
mod cost;
mod deep;
mod display;
mod env;
mod equality;
mod error;
mod estimate;
mod estimate_call;
mod eval;
mod function;
mod go_format;
mod issue;
mod library;
mod list;
mod macros;
mod map;
mod names;
mod nesting;
mod parse;
mod plan;
mod program;
mod re2;
pub mod rules;
mod schema;
mod time;
mod types;
mod validate;
mod value;

pub use bounds::CostEstimate;
pub use budget::{Budget, CompileBudget, DEFAULT_BYTES, DEFAULT_COMPILE_BYTES, DEFAULT_STEPS};
pub use env::Env;
pub use error::{EvalError, EvalErrorKind};
pub use issue::{Issue, Issues};
pub use library::{Authorizer, Check, Cidr, Decision, Ip, Quantity, Semver, Url, authorizer};
pub use list::{Iter, List};
pub use map::{HostObject, Map};
pub use names::{escape, is_identifier};
pub use program::{Evaluation, LazyFields, Limits, PER_CALL_LIMIT, Program};
pub use schema::Schema;
pub use time::{Duration, Timestamp};
pub use types::Type;
pub use value::{Opaque, Text, Value};

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
