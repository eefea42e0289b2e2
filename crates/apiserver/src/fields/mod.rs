//! Managed fields: server-side apply, and which manager owns which fields after every other write.
//!
//! ```text
//!   schema ──► Shape: how an object divides into fields
//!                │
//!   configuration ── extract ──► FieldSet ◄── compare ── two states of an object
//!                                 │
//!                     Managed: one FieldSet per manager, stored as the text of `metadata.managedFields`
//! ```
//!
//! All functions are pure: values in, values and sets out. [`crate::verbs`] calls them.
//! An object's managed fields are kept as text ([`crate::object::Object`]) and parsed only when a write changes them.

mod atomics;
mod compare;
mod created;
mod element;
mod extract;
mod managed;
mod merge;
mod noop_apply;
#[cfg(test)]
mod property_tests;
mod returned;
mod scale;
mod set;
mod shape;
mod updater;

pub(crate) use atomics::atomic_values;
pub(crate) use compare::{Comparison, compare};
pub(crate) use element::PathElement;
pub(crate) use extract::{ValidationErrors, extract};
pub(crate) use managed::{Managed, Manager, Operation};
pub(crate) use merge::merge;
pub(crate) use returned::read_with_unchanged_managed_fields;
pub(crate) use scale::{ReplicasPath, ReplicasPaths, SCALE_API_VERSION};
pub(crate) use set::FieldSet;
pub(crate) use shape::Shape;
pub(crate) use updater::{Applied, ApplyError, Conflicts, ManagedFieldsError, OnConflict, Updater, Versions};
