//! The webhooks: what an Icecream's user would read in an event later, they read at once, and both versions are served.
//!
//! | webhook | what it does |
//! |---|---|
//! | `mutate` | an Icecream without a `deploymentName` gets its own name |
//! | `validate` | refuses invalid names and labels; warns of a Deployment that another owner has |
//! | conversion | between `v1alpha1`, the stored version, and [`v1beta1`] |
//!
//! They are optional: without them the controller reports what is invalid, and only `v1alpha1` is served.

pub mod v1beta1;

use windlass::{
    k8s_openapi::{
        api::apps::v1::Deployment,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::core::crd::merge_crds,
    prelude::*,
    webhook::{
        Change, FieldErrors, ReviewRequest, Verdict, Webhooks, await_conversion, convert, mutate, validate,
    },
};

use crate::Icecream;

/// The CRD: with webhooks, both versions are served.
pub fn crd(with_webhooks: bool) -> CustomResourceDefinition {
    if !with_webhooks {
        return Icecream::crd();
    }
    let versions = vec![Icecream::crd(), v1beta1::Icecream::crd()];
    await_conversion(merge_crds(versions, "v1alpha1").expect("versions of one kind"))
}

/// Adds the webhooks of Icecreams. Pass the result to [`ManagerExt::webhooks`](windlass::webhook::ManagerExt::webhooks), and
/// install [`crd(true)`](crd).
pub fn add_webhooks(webhooks: Webhooks) -> Webhooks {
    webhooks
        .with(mutate(name_deployment))
        .with(validate(check))
        .with(convert::<Icecream>().version::<v1beta1::Icecream>())
        .reads::<Deployment>()
}

/// Names the Deployment like the Icecream. A name that the server generates is not known here.
fn name_deployment(icecream: &mut Icecream, _: &ReviewRequest) {
    if icecream.spec.deployment_name.is_empty() {
        icecream.spec.deployment_name = icecream.name_any();
    }
}

fn check(change: Change<'_, Icecream>, request: &ReviewRequest) -> Result<Verdict, Error> {
    let Some(icecream) = change.new_object() else {
        return Ok(Verdict::allow());
    };
    let mut errors = FieldErrors::new();
    for (field, error) in icecream.invalid_fields() {
        errors.invalid(field, error.text(), error.rule());
    }
    let verdict = Verdict::from(errors);
    let name = &*icecream.spec.deployment_name;
    let key = ObjectKey::namespaced(request.namespace.as_deref().unwrap_or_default(), name);
    let uid = icecream.uid().unwrap_or_default();
    let is_own = |deployment: Arc<Deployment>| {
        let owners = deployment.owner_references().iter();
        owners
            .filter(|owner| owner.controller == Some(true))
            .any(|owner| owner.uid == uid)
    };
    Ok(match request.lister::<Deployment>()?.get(&key).map(is_own) {
        Some(false) => verdict.warn(format!(
            "spec.deploymentName: Deployment {name} exists and is not of this Icecream: it is left alone, and created when it is gone"
        )),
        Some(true) | None => verdict,
    })
}
