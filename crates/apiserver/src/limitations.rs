//! Warnings about objects that have no effect, because nothing in this cluster acts on them.

use std::{collections::HashMap, fmt};

use serde_json::Value;

use crate::{object::Object, registry::Resource};

/// Warns clients that write objects of one resource, such as one whose controller does not run; see
/// [`Builder::limitation`](crate::Builder::limitation).
pub struct Limitation {
    group: Box<str>,
    plural: Box<str>,
    warning: Box<WarningFn>,
}

type WarningFn = dyn Fn(&Value) -> Option<String> + Send + Sync;

impl Limitation {
    /// The warning for every object of a resource, such as `("apps", "statefulsets")`; the core group is empty.
    pub fn new(group: &str, plural: &str, warning: impl Into<String>) -> Self {
        let warning = warning.into();
        Self::of_some(group, plural, move |_| Some(warning.clone()))
    }

    /// The warning for some objects of a resource: those for which the function returns one.
    pub fn of_some(
        group: &str,
        plural: &str,
        warning: impl Fn(&Value) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
            warning: Box::new(warning),
        }
    }
}

impl fmt::Debug for Limitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limitation({}/{})", self.group, self.plural)
    }
}

/// What this server stores without enforcing it.
pub(crate) fn of_server() -> Vec<Limitation> {
    vec![Limitation::of_some(
        "apiregistration.k8s.io",
        "apiservices",
        |service| {
            let warning = "this server does not forward requests to other API servers: the API is not served";
            service["spec"]["service"].is_object().then(|| warning.to_owned())
        },
    )]
}

/// The limitations of a server, by resource.
#[derive(Debug, Default)]
pub(crate) struct Limitations(HashMap<Box<str>, Vec<Limitation>>);

impl Limitations {
    pub(crate) fn new(all: Vec<Limitation>) -> Self {
        let mut by_plural = HashMap::<_, Vec<_>>::new();
        for limitation in all {
            by_plural
                .entry(limitation.plural.clone())
                .or_default()
                .push(limitation);
        }
        Self(by_plural)
    }

    /// The warnings about a write, except those that already applied to the old object: an object is announced once, not
    /// with every change.
    pub(crate) fn warnings(&self, resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<String> {
        if self.0.is_empty() || resource.is_custom {
            return Vec::new();
        }
        let of_plural = self.0.get(&resource.plural).into_iter().flatten();
        of_plural
            .filter(|limitation| limitation.group == resource.group)
            .filter_map(|limitation| {
                let warning = (limitation.warning)(object.tree())?;
                let known = old.and_then(|old| (limitation.warning)(old.tree()));
                (known.as_ref() != Some(&warning)).then_some(warning)
            })
            .collect()
    }
}
