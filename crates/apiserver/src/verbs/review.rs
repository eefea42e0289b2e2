//! Reviews: objects that are answered instead of stored.

use crate::{
    admission::{Admission, Admitted, Operation},
    auth::{AccessControl, Caller},
    kinds::Review,
    media::Encoding,
    request::Target,
    status::Status,
    verbs::{Answer, WriteOptions, decode, set_managed_fields_on_create},
};

/// Answers a review.
pub(crate) fn review(
    kind: &dyn Review,
    access_control: &AccessControl,
    target: &Target,
    options: &WriteOptions,
    (body, encoding): (&[u8], Encoding),
    (admission, caller): (&Admission, &Caller),
) -> Result<Answer, Status> {
    let resource = &target.resource;
    let (mut review, mut warnings) = decode(resource, body, encoding, options.field_validation)?;
    if resource.namespaced {
        match review.namespace() {
            "" => review.set_meta("namespace", target.namespace.to_string()),
            own if *own != *target.namespace => {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            _ => {}
        }
    }
    set_managed_fields_on_create(&access_control.store, resource, options, &mut review)?;
    let admitted = Admitted::write(target, Operation::Create, options);
    admission.mutate(&admitted, &mut review, None, &mut warnings, |_| Ok(()))?;
    admission.validate(&admitted, [Some(&review), None], &mut warnings)?;
    kind.answer(access_control, &caller.user, &mut review)?;
    Ok(Answer::Object {
        code: 201,
        json: review.into_value().to_string().into(),
        warnings,
    })
}
