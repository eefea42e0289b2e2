//! The controllers that come with Windlass, by name: what `run` offers and the demo shows.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use windlass::{
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube::CustomResourceExt, prelude::Manager,
};

/// A controller that can be run.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) about: &'static str,
    /// The kinds of its own.
    pub(crate) crds: fn() -> Vec<CustomResourceDefinition>,
    add: fn(Manager) -> Manager,
}

/// All of them, by name.
pub(crate) static ALL: &[Entry] = &[
    Entry {
        name: "foo",
        about: "A Foo owns a Deployment: Kubernetes' sample controller",
        crds: || vec![windlass_foo::Foo::crd()],
        add: |manager| manager.controller(windlass_foo::controller()),
    },
    Entry {
        name: "icecream",
        about: "An Icecream owns a Deployment, and tells where its pods are and what they request",
        crds: || vec![windlass_icecream::Icecream::crd()],
        add: |manager| manager.controller(windlass_icecream::controller()),
    },
];

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
pub(crate) fn add(manager: Manager, entries: &[&Entry]) -> Manager {
    entries
        .iter()
        .fold(manager, |manager, entry| (entry.add)(manager))
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
