//! Webhooks beside a controller: defaults that depend on the user, a refusal with field errors, and two versions of a kind.
//!
//! A Site has a host, which never changes. Its first version called its replicas `size`; objects are stored in the second,
//! and both are served.
//!
//! ```sh
//! cargo run -p windlass-examples --bin webhook -- --embedded   # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin webhook -- --install    # runs on the kubeconfig's cluster, and is called by it
//! ```

use windlass::{
    kube::core::crd::merge_crds,
    prelude::*,
    webhook::{
        Change, FieldErrors, ManagerExt, ReviewRequest, WebhookOptions, Webhooks, convert, convert_spec,
        moved_fields, mutate, validate,
    },
};
use windlass_examples::{User, example};

/// The first version.
mod v1 {
    /// Desired state of a [`Site`].
    #[windlass::resource(group = "example.com", version = "v1", kind = "Site", namespaced)]
    pub(crate) struct SiteSpec {
        /// The host.
        pub(crate) host: String,
        /// Replicas.
        pub(crate) size: Option<u32>,
        /// Who is responsible.
        pub(crate) owner: Option<String>,
    }
}

/// The stored version.
mod v2 {
    /// Desired state of a [`Site`].
    #[windlass::resource(group = "example.com", version = "v2", kind = "Site", namespaced)]
    pub(crate) struct SiteSpec {
        /// The host.
        pub(crate) host: String,
        /// Replicas. Default: two.
        pub(crate) replicas: Option<u32>,
        /// Who is responsible. Default: who creates it.
        pub(crate) owner: Option<String>,
    }
}

use v2::Site;

moved_fields!(v1::SiteSpec, v2::SiteSpec { host, size => replicas, owner });
convert_spec!(v1::Site, v2::Site);

/// Fills in what the user has left out.
fn fill_in(site: &mut Site, request: &ReviewRequest) {
    site.spec.replicas.get_or_insert(2);
    site.spec
        .owner
        .get_or_insert_with(|| request.username().to_owned());
}

/// Refuses what cannot work, with all errors at once.
fn check(change: Change<'_, Site>, _request: &ReviewRequest) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Change::Updated { old, new } = change {
        errors.immutable("spec.host", &old.spec.host, &new.spec.host);
    }
    if let Some(site) = change.new_object() {
        if !site.spec.host.ends_with(".example.com") {
            errors.invalid("spec.host", &site.spec.host, "must end with .example.com");
        }
        if site.spec.replicas == Some(0) {
            errors.invalid("spec.replicas", 0, "must be greater than 0");
        }
    }
    errors
}

fn main() -> std::process::ExitCode {
    let crd = merge_crds(vec![v1::Site::crd(), v2::Site::crd()], "v2").expect("versions of one kind");
    let webhooks = Webhooks::new("sites")
        .with(mutate(fill_in))
        .with(validate(check))
        .with(convert::<v2::Site>().version::<v1::Site>());
    let setup = |manager: Manager| manager.webhooks(webhooks, WebhookOptions::default());
    example("webhook", [crd], setup, demo)
}

async fn demo(user: User) -> Result<(), Error> {
    // The embedded API server calls the webhooks as soon as they are registered.
    let site =
        |host: &str| json!({ "metadata": { "name": "home" }, "spec": { "host": host, "replicas": 0 } });
    let refused = loop {
        match user.create::<Site>(site("home.example.org")).await {
            Err(error) => break error,
            Ok(_) => user.delete::<Site>("home").await?,
        }
        windlass::tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    println!("{refused}");

    let home = json!({ "metadata": { "name": "home" }, "spec": { "host": "home.example.com" } });
    let home = user.create::<Site>(home).await?;
    println!(
        "home has {:?} replicas, owned by {:?}",
        home.spec.replicas, home.spec.owner
    );

    let home = user.wait_for::<v1::Site>("home", |_| true).await?;
    println!("as v1 it has size {:?}", home.spec.size);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_loses_nothing() {
        windlass::webhook::testing::round_trips::<v1::Site, v2::Site>();
    }
}
