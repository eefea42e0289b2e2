//! From arguments to a manager that does it.

use std::sync::Arc;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{
        self, Api,
        api::{DynamicObject, ListParams},
        core::ApiResource,
    },
    prelude::{Client, Manager},
    runtime::Clock,
};

use crate::{
    arguments::{Arguments, Scope},
    delivery::{Hub, HubError},
    journal::{Journal, JournalError},
    kinds::{Kind, KindError, resolve},
    notice::What,
    redact::Redactor,
    sinks::SinkSpec,
    sync,
    teller::{self, Teller, Wishes},
    watcher::{self, There},
};

/// Where pods are looked for if nobody says where.
const DEFAULT_NAMESPACE: &str = "default";

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A kind.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The server cannot select by what was given.
    #[error("the server cannot select {kind} by that: {message} (see `--selector` and `--field-selector`)")]
    Selector {
        /// Which kind.
        kind: String,
        /// What the server says.
        message: String,
    },
    /// A sink.
    #[error(transparent)]
    Sinks(#[from] HubError),
    /// The state file.
    #[error(transparent)]
    State(#[from] JournalError),
}

/// Adds to a manager what the arguments ask for.
///
/// `namespaces` are those that the manager was given, if any: without them, and without `--kind`, it is about the namespace
/// `default` alone. The server is asked which kinds it has if some are named, and whether it takes the selectors if there are
/// some; nothing else happens before the manager runs.
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_podwatch::{Arguments, setup};
///
/// # async fn example(client: Client, arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
/// let manager = setup(Manager::new(client.clone()), &client, &[], &arguments).await?;
/// manager.run().await?;
/// # Ok(()) }
/// ```
pub async fn setup(
    manager: Manager,
    client: &Client,
    namespaces: &[String],
    arguments: &Arguments,
) -> Result<Manager, SetupError> {
    let mut scope = arguments.scope.clone();
    if scope.namespaces.is_empty() {
        scope.namespaces = namespaces.to_vec();
    }
    if scope.namespaces.is_empty() && arguments.kinds.is_empty() {
        scope.namespaces.push(DEFAULT_NAMESPACE.to_owned());
    }
    let kinds = if arguments.kinds.is_empty() {
        vec![pods()]
    } else {
        resolve(client, &arguments.kinds).await?
    };
    check_selectors(client, &kinds, &scope).await?;
    if arguments.is_plain() {
        return Ok(manager.controller(sync::controller(&scope, sync::Stdout::default())));
    }
    let clock = Clock::system();
    let hub = hub(arguments, clock)?;
    let wishes = Wishes {
        events: if arguments.events.is_empty() {
            What::ALL.to_vec()
        } else {
            arguments.events.clone()
        },
        filter: arguments.filter.clone(),
        heartbeats: arguments.heartbeats,
        clock,
    };
    Ok(watch(manager, kinds, &scope, wishes, &hub))
}

/// Adds the watches of these kinds to a manager, and the sinks that they tell. For programs without flags;
/// [`setup`] is the same from arguments.
pub fn watch(
    mut manager: Manager,
    kinds: Vec<Kind>,
    scope: &Scope,
    wishes: Wishes,
    hub: &Arc<Hub>,
) -> Manager {
    let (wishes, redactor) = (Arc::new(wishes), Arc::new(Redactor::default()));
    let mut tellers = Vec::new();
    for (number, kind) in kinds.into_iter().enumerate() {
        let Kind {
            resource,
            namespaced,
            installed,
        } = kind.clone();
        if !installed {
            tracing::warn!(
                kind = resource.kind,
                api_version = resource.api_version,
                plural = resource.plural,
                "not installed yet; waiting for it"
            );
        }
        let teller = Arc::new(Teller::new(kind, &wishes, &redactor));
        let there = There::new(&teller);
        let feed = hub.feed(
            &title(&resource, namespaced, scope),
            &Arc::new(resource.clone()),
            Arc::clone(&there) as _,
        );
        let name = name(&resource, number);
        manager = manager.controller(watcher::controller(name, scope, namespaced, &there, feed));
        tellers.push(teller);
    }
    teller::show(&manager.metrics(), &wishes, &tellers);
    hub.show(&manager.metrics());
    let hub = Arc::clone(hub);
    manager.service("podwatch-sinks", move |ctx| {
        let hub = Arc::clone(&hub);
        async move { Ok(hub.run(ctx.stopping()).await?) }
    })
}

/// Asks the server once whether it takes the selectors: a watch would ask for ever. What else may be wrong, such as rights that
/// come later, is the watch's to wait for.
async fn check_selectors(client: &Client, kinds: &[Kind], scope: &Scope) -> Result<(), SetupError> {
    if scope.labels.is_none() && scope.fields.is_none() {
        return Ok(());
    }
    let params = ListParams {
        label_selector: scope.labels.clone(),
        field_selector: scope.fields.clone(),
        ..ListParams::default().limit(1)
    };
    for kind in kinds.iter().filter(|kind| kind.installed) {
        let resource = &kind.resource;
        let objects = match scope.namespaces.first().filter(|_| kind.namespaced) {
            Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        if let Err(kube::Error::Api(status)) = objects.list_metadata(&params).await
            && status.code == 400
        {
            return Err(SetupError::Selector {
                kind: resource.plural.clone(),
                message: status.message.clone(),
            });
        }
    }
    Ok(())
}

fn hub(arguments: &Arguments, clock: Clock) -> Result<Arc<Hub>, SetupError> {
    let mut sinks = arguments.sinks.clone();
    if sinks.is_empty() {
        sinks.push("stdout".parse().expect("it is a sink"));
    }
    if arguments.diff {
        sinks = sinks.into_iter().map(SinkSpec::with_diff).collect();
    }
    let journal = arguments.state.as_deref().map(Journal::open).transpose()?;
    Ok(Arc::new(Hub::open(&sinks, journal, clock)?))
}

fn pods() -> Kind {
    Kind {
        resource: ApiResource::erase::<Pod>(&()),
        namespaced: true,
        installed: true,
    }
}

/// What is told of, for the state file: another selection is another story.
fn title(resource: &ApiResource, namespaced: bool, scope: &Scope) -> String {
    let mut parts = vec![format!("{}/{}", resource.api_version, resource.plural)];
    let mut within = scope.namespaces.clone();
    within.sort();
    if namespaced && !within.is_empty() {
        parts.push(format!("namespaces={}", within.join(",")));
    }
    for (name, selector) in [("labels", &scope.labels), ("fields", &scope.fields)] {
        parts.extend(selector.as_ref().map(|selector| format!("{name}={selector}")));
    }
    parts.join(" ")
}

/// The controller's name: readable, and no longer than one may be.
fn name(resource: &ApiResource, number: usize) -> String {
    let ApiResource {
        plural,
        version,
        group,
        ..
    } = resource;
    let name = format!("podwatch-{plural}.{version}.{group}");
    let name = name.trim_end_matches('.');
    match name.get(..59) {
        Some(beginning) if name.len() > 63 => format!("{beginning}-{number}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use windlass::kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn a_controllers_name_is_as_long_as_it_may_be() {
        let deployments = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        assert_eq!(name(&deployments, 0), "podwatch-deployments.v1.apps");
        assert_eq!(name(&pods().resource, 1), "podwatch-pods.v1");
        let long = ApiResource::from_gvk(&GroupVersionKind::gvk(&"g.".repeat(60), "v1", "Foo"));
        let name = name(&long, 12);
        assert!(name.len() <= 63 && name.ends_with("-12"), "{name}");
    }

    #[test]
    fn another_selection_is_another_story_and_the_same_in_another_order_is_not() {
        let scope = |namespaces: &[&str], labels: Option<&str>| Scope {
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            labels: labels.map(str::to_owned),
            ..Scope::default()
        };
        let title = |namespaced, scope| title(&pods().resource, namespaced, &scope);
        assert_eq!(
            title(true, scope(&["b", "a"], Some("x=y"))),
            "v1/pods namespaces=a,b labels=x=y"
        );
        assert_eq!(
            title(true, scope(&["a", "b"], None)),
            title(true, scope(&["b", "a"], None))
        );
        assert_eq!(title(false, scope(&["a"], None)), "v1/pods");
    }
}
