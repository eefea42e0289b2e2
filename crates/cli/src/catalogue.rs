//! Windlass's own controllers by name, for `run` and the demo.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use futures::{FutureExt, future::LocalBoxFuture};
use windlass::{
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube::CustomResourceExt,
    prelude::{Client, Manager},
    webhook::{OptionalWebhooks, Webhooks},
};

/// A controller that can be run.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// A one-line description.
    pub(crate) about: &'static str,
    /// The CRDs it needs, with or without its webhooks.
    crds: fn(with_webhooks: bool) -> Vec<CustomResourceDefinition>,
    /// Adds its webhooks, if it has any.
    webhooks: Option<AddWebhooks>,
    add: for<'a> fn(Manager, SetupContext<'a>) -> LocalBoxFuture<'a, anyhow::Result<Manager>>,
}

type AddWebhooks = for<'a> fn(Webhooks, SetupContext<'a>) -> LocalBoxFuture<'a, anyhow::Result<Webhooks>>;

/// What controllers need when they are added to a manager.
#[derive(Clone, Copy)]
pub(crate) struct SetupContext<'a> {
    /// A client for the cluster.
    pub(crate) client: &'a Client,
    /// The manager's namespaces; empty: all.
    pub(crate) namespaces: &'a [String],
    pub(crate) podwatch: &'a windlass_podwatch::Arguments,
    pub(crate) reboot: &'a windlass_reboot::Arguments,
    pub(crate) agent: &'a windlass_reboot::agent::Arguments,
    pub(crate) secretsync: &'a windlass_secretsync::Arguments,
}

/// All controllers, sorted by name.
pub(crate) static ALL: &[Entry] = &[
    Entry {
        name: "foo",
        about: "A Foo owns a Deployment: Kubernetes' sample controller",
        crds: |_| vec![windlass_foo::Foo::crd()],
        webhooks: None,
        add: |manager, _| async { Ok(manager.controller(windlass_foo::controller())) }.boxed_local(),
    },
    Entry {
        name: ICECREAM,
        about: "An Icecream owns a Deployment, and reports its pods' nodes and requests in its status",
        crds: |with_webhooks| vec![windlass_icecream::crd(with_webhooks)],
        webhooks: Some(|webhooks, _| async { Ok(windlass_icecream::add_webhooks(webhooks)) }.boxed_local()),
        add: |manager, _| async { Ok(manager.controller(windlass_icecream::controller())) }.boxed_local(),
    },
    Entry {
        name: PODWATCH,
        about: "Watches pods or any other kind and reports changes to stdout, files, webhooks, chats, logs and Events",
        crds: |_| Vec::new(),
        webhooks: None,
        add: |manager, setting| {
            let SetupContext {
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
        about: "Reboots nodes on request, a limited number at a time, and verifies each reboot",
        crds: |_| vec![windlass_reboot::RebootPolicy::crd()],
        webhooks: None,
        add: |manager, SetupContext { client, reboot, .. }| {
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
        about: "Reboots the node it runs on, when the reboot controller permits it",
        crds: |_| Vec::new(),
        webhooks: None,
        add: |manager, setting| {
            let SetupContext {
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
        crds: |_| vec![windlass_secretsync::SecretSync::crd()],
        webhooks: Some(
            |webhooks,
             SetupContext {
                 client, secretsync, ..
             }| {
                async move {
                    let added = windlass_secretsync::add_webhooks(webhooks, client, secretsync).await;
                    added.map_err(|error| anyhow::anyhow!("{error}"))
                }
                .boxed_local()
            },
        ),
        add: |manager, setting| {
            let SetupContext {
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

/// Names of the controllers that have flags.
pub(crate) const ICECREAM: &str = "icecream";
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

    /// Parses a name on the command line; the help lists all names.
    pub(crate) fn parser() -> impl TypedValueParser<Value = &'static Self> {
        let names = ALL
            .iter()
            .map(|entry| PossibleValue::new(entry.name).help(entry.about));
        PossibleValuesParser::new(names).map(|name| Self::named(&name).expect("one of the possible values"))
    }
}

/// Adds controllers to a manager.
pub(crate) async fn add(
    mut manager: Manager,
    entries: &[&Entry],
    setting: SetupContext<'_>,
) -> anyhow::Result<Manager> {
    for entry in entries {
        manager = (entry.add)(manager, setting).await?;
    }
    Ok(manager)
}

/// The webhooks of these controllers, in one server, if they are enabled.
pub(crate) async fn add_webhooks(
    manager: Manager,
    program: &str,
    entries: &[&Entry],
    flags: &OptionalWebhooks,
    setting: SetupContext<'_>,
) -> anyhow::Result<Manager> {
    let mut webhooks = Webhooks::new(program);
    if flags.enabled {
        for add in entries.iter().filter_map(|entry| entry.webhooks) {
            webhooks = add(webhooks, setting).await?;
        }
    }
    Ok(flags.clone().add_to(manager, webhooks))
}

/// The CRDs that these controllers need, with or without their webhooks.
pub(crate) fn crds(entries: &[&Entry], with_webhooks: bool) -> Vec<CustomResourceDefinition> {
    entries
        .iter()
        .flat_map(|entry| (entry.crds)(with_webhooks))
        .collect()
}

/// The names and descriptions of all controllers, one per line.
pub(crate) fn descriptions() -> String {
    let widest = ALL.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let lines = ALL
        .iter()
        .map(|Entry { name, about, .. }| format!("  {name:<widest$}  {about}"));
    lines.collect::<Vec<_>>().join("\n")
}
