//! The sample controller: a [`Foo`] owns a Deployment.
//!
//! ```text
//!   Foo ──spec.deploymentName, spec.replicas──► Deployment (controlled by the Foo, by UID)
//!    ▲                                              │
//!    └──────── status.availableReplicas ────────────┘
//! ```
//!
//! It does what Kubernetes' own sample-controller does, under the same names, so that the two can be exchanged; and
//! better where that one is known to be weak: every field that it sets is kept, not only the number of replicas; the
//! Deployment of a former name is removed; nothing is written when nothing differs.
//!
//! [`types`] is the resource and its CRD, [`deployment`] what a Foo's Deployment should look like, [`drift`] the
//! smallest patch from what is to what should be, [`reconcile`] the loop's body.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

pub mod deployment;
pub mod drift;
pub mod reconcile;
pub mod types;

use std::num::NonZeroUsize;

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};

pub use types::{Foo, FooSpec, FooStatus};

/// The name under which this controller writes (`fieldManager`), as upstream's.
pub const FIELD_MANAGER: &str = "sample-controller";

/// The controller, ready to be run by a [`Manager`]. Two objects are reconciled at a time, as upstream does.
pub fn controller() -> Controller<Foo, reconcile::FooReconciler> {
    Controller::<Foo>::new("foo")
        .owns::<Deployment>()
        .concurrency(const { NonZeroUsize::new(2).unwrap() })
        .reconcile(reconcile::FooReconciler)
}
