//! Turns the flags into controllers and sinks on a manager.

use std::sync::Arc;

use windlass::{
    api::status::StatusClass,
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
    notice::EventType,
    notice_builder::{self, NoticeBuilder, NoticeOptions},
    redact::Redactor,
    sinks::{Address, SinkSpec, is_event},
    sync,
    watcher::{self, CachedState},
};

/// The namespace whose pods are watched when no flag names one.
const DEFAULT_NAMESPACE: &str = "default";

/// Why podwatch cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A kind cannot be resolved.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The server rejects a selector.
    #[error(
        "the server rejects the selector for {kind}: {message} (check `--selector` and `--field-selector`)"
    )]
    Selector {
        /// The plural of the kind.
        kind: String,
        /// The server's message.
        message: String,
    },
    /// A sink cannot be opened.
    #[error(transparent)]
    Sinks(#[from] HubError),
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] JournalError),
    /// Events would be reported as Events.
    #[error(
        "`--sink events` cannot report the kind `{0}`: each Event would be reported by another one; choose another sink for it"
    )]
    EventsAboutEvents(String),
}

/// Adds to a manager the watches and sinks that the arguments ask for.
///
/// `namespaces` are the manager's, if any: without them and without `--kind`, podwatch watches the namespace `default` only.
/// Queries discovery if kinds are named, and checks selectors with one list per kind if there are any; nothing else happens before
/// the manager runs.
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
    if arguments.is_sync_to_stdout() {
        return Ok(manager.controller(sync::controller(&scope, sync::Stdout::default())));
    }
    let reports_as_events = arguments
        .sinks
        .iter()
        .any(|sink| matches!(sink.address, Address::Events));
    let is_events = |kind: &&Kind| is_event(&kind.resource.group, &kind.resource.kind);
    if let Some(kind) = kinds.iter().find(is_events).filter(|_| reports_as_events) {
        return Err(SetupError::EventsAboutEvents(kind.resource.plural.clone()));
    }
    let clock = Clock::system();
    let hub = open_hub(arguments, clock, client)?;
    let options = NoticeOptions {
        events: if arguments.events.is_empty() {
            EventType::ALL.to_vec()
        } else {
            arguments.events.clone()
        },
        filter: arguments.filter.clone(),
        heartbeats: arguments.heartbeats,
        every_change: arguments.every_change,
        clock,
    };
    Ok(watch(manager, kinds, &scope, options, &hub))
}

/// Adds watches of these kinds to a manager, and the sinks that they report to. For programs without flags; [`setup`] does the
/// same from arguments.
pub fn watch(
    mut manager: Manager,
    kinds: Vec<Kind>,
    scope: &Scope,
    options: NoticeOptions,
    hub: &Arc<Hub>,
) -> Manager {
    let (options, redactor) = (Arc::new(options), Arc::new(Redactor::default()));
    let mut builders = Vec::new();
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
        let builder = Arc::new(NoticeBuilder::new(kind, &options, &redactor));
        let current = CachedState::new(&builder);
        let feed = hub.add_feed(
            &scope_name(&resource, namespaced, scope),
            &Arc::new(resource.clone()),
            Arc::clone(&current) as _,
        );
        let name = controller_name(&resource, number);
        manager = manager.controller(watcher::controller(name, scope, namespaced, &current, feed));
        builders.push(builder);
    }
    notice_builder::register_metrics(&manager.metrics(), &options, &builders);
    hub.register_metrics(&manager.metrics());
    let hub = Arc::clone(hub);
    manager.service("podwatch-sinks", move |ctx| {
        let hub = Arc::clone(&hub);
        async move { Ok(hub.run(ctx.stopping()).await?) }
    })
}

/// Checks the selectors with one list request per kind: a watch would retry an invalid one endlessly. Other errors, such as
/// missing rights, are left to the watch, which retries.
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
            && StatusClass::of(&status) == StatusClass::Invalid
        {
            return Err(SetupError::Selector {
                kind: resource.plural.clone(),
                message: status.message.clone(),
            });
        }
    }
    Ok(())
}

fn open_hub(arguments: &Arguments, clock: Clock, client: &Client) -> Result<Arc<Hub>, SetupError> {
    let mut sinks = arguments.sinks.clone();
    if sinks.is_empty() {
        sinks.push("stdout".parse().expect("a valid sink"));
    }
    if arguments.diff {
        sinks = sinks.into_iter().map(SinkSpec::with_diff).collect();
    }
    if arguments.every_change {
        sinks = sinks.into_iter().map(SinkSpec::with_every_change).collect();
    }
    let journal = arguments.state.as_deref().map(Journal::open).transpose()?;
    Ok(Arc::new(Hub::open(&sinks, journal, clock, Some(client))?))
}

fn pods() -> Kind {
    Kind {
        resource: ApiResource::erase::<Pod>(&()),
        namespaced: true,
        installed: true,
    }
}

/// Identifies a kind and selection in the state file: another selection has its own progress.
fn scope_name(resource: &ApiResource, namespaced: bool, scope: &Scope) -> String {
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

/// The controller's name, shortened to the 63 characters allowed.
fn controller_name(resource: &ApiResource, number: usize) -> String {
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
    fn controller_name_has_at_most_63_characters() {
        let deployments = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        assert_eq!(controller_name(&deployments, 0), "podwatch-deployments.v1.apps");
        assert_eq!(controller_name(&pods().resource, 1), "podwatch-pods.v1");
        let long = ApiResource::from_gvk(&GroupVersionKind::gvk(&"g.".repeat(60), "v1", "Foo"));
        let name = controller_name(&long, 12);
        assert!(name.len() <= 63 && name.ends_with("-12"), "{name}");
    }

    #[test]
    fn scope_name_depends_on_selection_but_not_namespace_order() {
        let scope = |namespaces: &[&str], labels: Option<&str>| Scope {
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            labels: labels.map(str::to_owned),
            ..Scope::default()
        };
        let title = |namespaced, scope| scope_name(&pods().resource, namespaced, &scope);
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
