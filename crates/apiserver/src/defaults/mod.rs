//! What the real server fills in.

use crate::{object::Object, registry::Resource};

/// Fills in what a built-in kind's object leaves to the server.
pub(crate) fn fill(_resource: &Resource, _object: &mut Object) {}
