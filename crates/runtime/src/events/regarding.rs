//! The objects that events can refer to.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// The regarding object of an event: an object of a typed kind, an [`Arc`] of one as caches return it, or an
/// [`ObjectReference`].
///
/// For a dynamic object pass `&object.object_ref(&api_resource)`. The object need not exist any more.
///
/// `Marker` is a marker that the compiler infers; it keeps the implementations from overlapping.
#[diagnostic::on_unimplemented(
    message = "an event cannot be about a `{Self}`",
    note = "pass an object of a typed kind, an `Arc` of one, or an `ObjectReference`",
    note = "for a dynamic object pass `&object.object_ref(&api_resource)`"
)]
pub trait Regarding<Marker> {
    /// Returns a reference to the object.
    fn reference(&self) -> ObjectReference;
}

/// Marker types that keep the implementations of [`Regarding`] from overlapping. Users need not name them.
pub mod markers {
    /// An object of a typed kind.
    #[derive(Debug)]
    pub enum Typed {}

    /// An object in an [`Arc`](std::sync::Arc).
    #[derive(Debug)]
    pub enum Shared {}

    /// An [`ObjectReference`](k8s_openapi::api::core::v1::ObjectReference).
    #[derive(Debug)]
    pub enum Reference {}
}

impl<K: Resource<DynamicType = ()>> Regarding<markers::Typed> for K {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl<K: Resource<DynamicType = ()>> Regarding<markers::Shared> for Arc<K> {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl Regarding<markers::Reference> for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}
