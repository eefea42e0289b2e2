//! Who owns which fields of an object: server-side apply, and the account that is kept of every other write.
//!
//! ```text
//!   schema ──► Shape: how an object falls into fields
//!                │
//!   configuration ── extract ──► Set ◄── compare ── two states of an object
//!                                 │
//!                     Managed: one Set a manager, stored as the text of `metadata.managedFields`
//! ```
//!
//! What stands here is pure: values in, values and sets out. The verbs decide when it is asked.
//! An object's account is text while it is kept ([`crate::object::Object`]), and is read only when a write changes it.

mod account;
mod compare;
mod element;
mod extract;
mod fresh;
#[cfg(test)]
mod laws;
mod managed;
mod merge;
mod repeat;
mod returned;
mod scale;
mod set;
mod shape;

pub(crate) use account::{Applied, Conflicts, OnConflict, Refused, Unaccountable, Versions, Writer};
pub(crate) use compare::{Comparison, compare};
pub(crate) use element::Element;
pub(crate) use extract::{Malformed, extract};
pub(crate) use managed::{Managed, Manager, Operation};
pub(crate) use returned::read_returned;
pub(crate) use scale::{Replicas, ReplicasPath, SCALE};
pub(crate) use set::Set;
pub(crate) use shape::Shape;
