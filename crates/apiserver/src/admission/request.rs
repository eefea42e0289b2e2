//! What admission knows about a request besides the object: the variable `request` of expressions.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use super::evaluation::RequestCost;
use crate::{
    auth::Caller,
    object_store::ObjectStore,
    registry::{self, Resource},
    request::Target,
    schema::Schema,
};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A connection to a pod, a service or a node.
    Connect,
}

impl Operation {
    /// Its name in rules and in `request.operation`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A group, version and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersionKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

impl GroupVersionKind<'_> {
    fn to_json(self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// A request that is admitted, without its object.
pub(crate) struct Attributes<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// For a namespace, its own name.
    pub(crate) namespace: &'a str,
    /// Empty if it is generated, and in the deletion of a collection.
    pub(crate) name: &'a str,
    pub(crate) operation: Operation,
    pub(crate) dry_run: bool,
    /// The `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: &'a Value,
    pub(crate) caller: &'a Arc<Caller>,
    /// What the expressions about the request have cost.
    pub(crate) cost: RequestCost,
    /// The other versions of the resource, which few requests have.
    others: OnceLock<Vec<Arc<Resource>>>,
}

impl<'a> Attributes<'a> {
    /// The attributes of a request. `name` is the object's, if the target has none.
    pub(crate) fn new(
        target: &'a Target,
        name: &'a str,
        operation: Operation,
        (options, dry_run): (&'a Value, bool),
        caller: &'a Arc<Caller>,
    ) -> Self {
        let name = if target.name.is_empty() {
            name
        } else {
            &target.name
        };
        let is_namespace = is_namespace(&target.resource);
        Self {
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: if is_namespace { name } else { &target.namespace },
            name,
            operation,
            dry_run,
            options,
            caller,
            cost: RequestCost::of(caller),
            others: OnceLock::new(),
        }
    }

    /// The same request as the deletion of a whole collection shows it: without a name.
    pub(crate) fn without_name(self) -> Self {
        Self { name: "", ..self }
    }

    /// The kind of the object.
    pub(crate) fn kind(&self) -> GroupVersionKind<'a> {
        kind_of(self.resource, self.subresource)
    }

    /// Whether the object is the resource's, and not that of a subresource with a kind of its own, such as a Scale.
    pub(crate) fn is_object(&self) -> bool {
        self.subresource.is_empty() || *self.kind().kind == *self.resource.kind
    }

    /// The schema of the object.
    pub(crate) fn schema(&self) -> Option<&'a Schema> {
        match self.subresource {
            _ if self.is_object() => self.resource.schema.as_ref(),
            "scale" => Some(registry::scale()),
            _ => Some(registry::subresource_schema(self.kind().kind)),
        }
    }

    /// Whether the request is about a Namespace.
    pub(crate) fn is_namespace(&self) -> bool {
        is_namespace(self.resource)
    }

    /// The namespace that contains the object; `None` for cluster-scoped objects.
    pub(crate) fn containing_namespace(&self) -> Option<&'a str> {
        (!self.is_namespace() && !self.namespace.is_empty()).then_some(self.namespace)
    }

    /// The other versions of the resource that have the subresource.
    pub(crate) fn other_versions(&self, store: &ObjectStore) -> &[Arc<Resource>] {
        self.others.get_or_init(|| {
            let catalogue = store.registry.catalogue();
            let is_other = |other: &&Arc<Resource>| {
                other.table == self.resource.table
                    && (&other.group, &other.version) != (&self.resource.group, &self.resource.version)
                    && (self.subresource.is_empty() || other.subresource(self.subresource).is_some())
            };
            let mut others: Vec<_> = catalogue.resources.iter().filter(is_other).cloned().collect();
            // In the order in which a real server tries them.
            others.sort_by_key(|other| {
                let conversion = other.crd.as_ref().map(|defined| &defined.conversion);
                conversion.and_then(|conversion| conversion.place_of(&other.version))
            });
            others
        })
    }

    /// The variable `request`, for a policy that was matched as this resource.
    pub(crate) fn to_request(&self, matched: &Resource) -> Value {
        let resource = |resource: &Resource| json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
        let mut request = Map::new();
        let mut set = |key: &str, value: Value| drop(request.insert(key.to_owned(), value));
        set("kind", kind_of(matched, self.subresource).to_json());
        set("resource", resource(matched));
        set("requestKind", self.kind().to_json());
        set("requestResource", resource(self.resource));
        for (key, text) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ] {
            if !text.is_empty() {
                set(key, text.into());
            }
        }
        set("operation", self.operation.name().into());
        set("userInfo", self.caller.user.to_user_info());
        set("dryRun", self.dry_run.into());
        set("options", self.options.clone());
        Value::Object(request)
    }
}

fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && *resource.plural == *"namespaces"
}

/// The kind of a resource's objects, or of one of its subresources.
pub(super) fn kind_of<'a>(resource: &'a Resource, subresource: &str) -> GroupVersionKind<'a> {
    let own = GroupVersionKind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
    };
    match resource.subresource(subresource) {
        Some(part) if !part.version.is_empty() => GroupVersionKind {
            group: &part.group,
            version: &part.version,
            kind: &part.kind,
        },
        Some(part) => GroupVersionKind {
            kind: &part.kind,
            ..own
        },
        None => own,
    }
}
