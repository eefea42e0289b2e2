//! Allocates what only one object may have, between validation and the validating stage of admission.

use super::{WriteOptions, WriteVerbs};
use crate::{admission::Admitted, kinds::Allocation, object::Object, status::Status, warnings::Warnings};

/// How often policies see an object whose allocation was lost while they were evaluated. After that, it is kept meanwhile.
const MAX_TRIES: usize = 4;

impl WriteVerbs {
    /// Allocates what an object needs, and lets policies and webhooks validate it. The allocation has to be held until the
    /// object is written. It is not held while policies are evaluated, which takes long if they are expensive: if another object
    /// has got the same meanwhile, this is done again.
    pub(super) fn allocate_and_validate(
        &self,
        admitted: &Admitted<'_>,
        object: &mut Object,
        old: Option<&Object>,
        options: &WriteOptions,
        warnings: &mut Warnings,
    ) -> Result<Allocation<'_>, Status> {
        let resource = &admitted.target.resource;
        let allocate = |object: &mut Object| resource.strategy.allocate(self, resource, object, old, options);
        if resource.facts.is_allocated && self.admission.may_intervene() {
            let before = object.clone();
            for _ in 0..MAX_TRIES {
                drop(allocate(object)?);
                self.admission.validate(admitted, [Some(object), old], warnings)?;
                let mut again = before.clone();
                let allocation = allocate(&mut again)?;
                if again == *object {
                    return Ok(allocation);
                }
                before.clone_into(object);
            }
        }
        let allocation = allocate(object)?;
        self.admission.validate(admitted, [Some(object), old], warnings)?;
        Ok(allocation)
    }
}
