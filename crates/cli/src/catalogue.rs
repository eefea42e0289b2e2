//! The controllers that come with Windlass, by name: what `run` offers and the demo shows.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use futures::{FutureExt, future::LocalBoxFuture};
use windlass::{
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube::CustomResourceExt,
    prelude::{Client, Manager},
};

/// A controller that can be run.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) about: &'static str,
    /// The kinds of its own.
    crds: fn() -> Vec<CustomResourceDefinition>,
    add: for<'a> fn(Manager, Setting<'a>) -> LocalBoxFuture<'a, anyhow::Result<Manager>>,
}

/// What controllers may have to know before they are added.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// For questions to the cluster that is chosen.
    pub(crate) client: &'a Client,
    /// Where the manager looks; empty: everywhere.
    pub(crate) namespaces: &'a [String],
    pub(crate) podwatch: &'a windlass_podwatch::Arguments,
    pub(crate) reboot: &'a windlass_reboot::Arguments,
    pub(crate) agent: &'a windlass_reboot::agent::Arguments,
    pub(crate) secretsync: &'a windlass_secretsync::Arguments,
}

/// All of them, by name.
pub(crate) static ALL: &[Entry] = &[
    Entry {
        name: "foo",
        about: "A Foo owns a Deployment: Kubernetes' sample controller",
        crds: || vec![windlass_foo::Foo::crd()],
        add: |manager, _| async { Ok(manager.controller(windlass_foo::controller())) }.boxed_local(),
    },
    Entry {
        name: "icecream",
        about: "An Icecream owns a Deployment, and tells where its pods are and what they request",
        crds: || vec![windlass_icecream::Icecream::crd()],
        add: |manager, _| async { Ok(manager.controller(windlass_icecream::controller())) }.boxed_local(),
    },
    Entry {
        name: PODWATCH,
        about: "Tells what happens to pods, or to any other kind, to standard output, webhooks and files",
        crds: Vec::new,
        add: |manager, setting| {
            let Setting {
                client,
                namespaces,
                podwatch,
                ..
            } = setting;
            async move { Ok(windlass_podwatch::setup(manager, client, namespaces, podwatch).await?) }
                .boxed_local()
        },
    },
    Entry {
        name: REBOOT,
        about: "Reboots the nodes that ask for it, so many at a time, and proves that each of them did",
        crds: || vec![windlass_reboot::RebootPolicy::crd()],
        add: |manager, Setting { client, reboot, .. }| {
            async move {
                let manager = windlass_reboot::setup(manager, reboot)?;
                if !reboot.simulated_agents {
                    return Ok(manager);
                }
                Ok(windlass_reboot::agent::simulated(manager, client, &reboot.prefix).await?)
            }
            .boxed_local()
        },
    },
    Entry {
        name: REBOOT_AGENT,
        about: "Reboots the node that it runs on, when reboot lets it",
        crds: Vec::new,
        add: |manager, setting| {
            let Setting {
                client,
                reboot,
                agent,
                ..
            } = setting;
            async move { Ok(windlass_reboot::agent::setup(manager, client, &reboot.prefix, agent).await?) }
                .boxed_local()
        },
    },
    Entry {
        name: SECRETSYNC,
        about: "Copies Secrets and ConfigMaps into the namespaces that ask for them",
        crds: || vec![windlass_secretsync::SecretSync::crd()],
        add: |manager, setting| {
            let Setting {
                client,
                namespaces,
                secretsync,
                ..
            } = setting;
            async move { Ok(windlass_secretsync::setup(manager, client, namespaces, secretsync).await?) }
                .boxed_local()
        },
    },
];

/// Those with flags of their own.
pub(crate) const PODWATCH: &str = "podwatch";
pub(crate) const REBOOT: &str = "reboot";
pub(crate) const REBOOT_AGENT: &str = "reboot-agent";
pub(crate) const SECRETSYNC: &str = "secretsync";

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Entry {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|entry| entry.name == name)
    }

    /// Reads names on a command line, and tells those that there are.
    pub(crate) fn parser() -> impl TypedValueParser<Value = &'static Self> {
        let names = ALL
            .iter()
            .map(|entry| PossibleValue::new(entry.name).help(entry.about));
        PossibleValuesParser::new(names)
            .map(|name| Self::named(&name).expect("it is one of the possible values"))
    }
}

/// Adds controllers to a manager.
pub(crate) async fn add(
    mut manager: Manager,
    entries: &[&Entry],
    setting: Setting<'_>,
) -> anyhow::Result<Manager> {
    for entry in entries {
        manager = (entry.add)(manager, setting).await?;
    }
    Ok(manager)
}

/// The kinds of their own that they all need.
pub(crate) fn crds(entries: &[&Entry]) -> Vec<CustomResourceDefinition> {
    entries.iter().flat_map(|entry| (entry.crds)()).collect()
}

/// The list for a person who asks what there is.
pub(crate) fn list() -> String {
    let widest = ALL.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let lines = ALL
        .iter()
        .map(|Entry { name, about, .. }| format!("  {name:<widest$}  {about}"));
    lines.collect::<Vec<_>>().join("\n")
}
