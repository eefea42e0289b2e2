//! What an event can be about.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// What an event can be about: an object of a typed kind, as such or shared in an [`Arc`] as a cache gives it, or an
/// [`ObjectReference`].
///
/// A dynamic object has a reference: `&object.object_ref(&api_resource)`. It does not matter whether the object still
/// exists.
///
/// `How` is found by the compiler and never written: it keeps the implementations apart.
#[diagnostic::on_unimplemented(
    message = "an event cannot be about a `{Self}`",
    note = "pass an object of a typed kind, an `Arc` of one, or an `ObjectReference`",
    note = "for a dynamic object pass `&object.object_ref(&api_resource)`"
)]
pub trait Regarding<How> {
    /// Names the object.
    fn reference(&self) -> ObjectReference;
}

/// How an object of a typed kind is named.
#[derive(Debug)]
pub enum Typed {}

/// How an object in an [`Arc`] is named.
#[derive(Debug)]
pub enum Shared {}

/// How a reference is named: as it is.
#[derive(Debug)]
pub enum Referred {}

impl<K: Resource<DynamicType = ()>> Regarding<Typed> for K {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl<K: Resource<DynamicType = ()>> Regarding<Shared> for Arc<K> {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl Regarding<Referred> for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}
