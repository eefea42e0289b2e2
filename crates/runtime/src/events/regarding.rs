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

/// What keeps the implementations of [`Regarding`] apart; nobody needs to name these.
pub mod how {
    /// An object of a typed kind.
    #[derive(Debug)]
    pub enum Typed {}

    /// An object in an [`Arc`](std::sync::Arc).
    #[derive(Debug)]
    pub enum Shared {}

    /// A reference, as it is.
    #[derive(Debug)]
    pub enum Referred {}
}

impl<K: Resource<DynamicType = ()>> Regarding<how::Typed> for K {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl<K: Resource<DynamicType = ()>> Regarding<how::Shared> for Arc<K> {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

impl Regarding<how::Referred> for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}
