//! The discovery documents: `/api/`, `/apis/`, `/apis/apps/`, `/apis/apps/v1/` and `/version/`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{
    operations::{BodySchema, OBJECT_MEDIA_TYPES, Operation, OperationNames},
    schemas::{META, Schemas},
};
use crate::registry::Catalogue;

const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A document that does not belong to a group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `/api/`
    Core,
    /// `/apis/`
    Groups,
    /// `/apis/apps/`
    Group(String),
    /// `/version/`
    Version,
}

/// All of them; groups that only CRDs define have none.
pub(super) fn all(catalogue: &Catalogue) -> Vec<Root> {
    let built_in = |name: &str| {
        let mut resources = catalogue.resources.iter();
        !name.is_empty() && resources.any(|resource| *resource.group == *name && !resource.is_custom)
    };
    let groups = catalogue.groups.iter().filter(|group| built_in(&group.name));
    let groups = groups.map(|group| Root::Group(group.name.to_string()));
    [Root::Core, Root::Groups, Root::Version]
        .into_iter()
        .chain(groups)
        .collect()
}

impl Root {
    /// Its path, without the slashes at both ends.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Core => "api".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(name) => format!("apis/{name}"),
            Self::Version => "version".to_owned(),
        }
    }

    /// The operation that reads it.
    pub(super) fn operation(&self, schemas: &mut Schemas) -> Operation {
        match self {
            Self::Core => read("getCoreAPIVersions", "core", schemas.meta("APIVersions")),
            Self::Groups => read("getAPIVersions", "apis", schemas.meta("APIGroupList")),
            Self::Group(name) => {
                let names = OperationNames::new(name, "");
                let id = format!("get{}APIGroup", names.id_part);
                read(&id, names.tag.trim_end_matches('_'), schemas.meta("APIGroup"))
            }
            Self::Version => {
                let mut operation = read("getCodeVersion", "version", schemas.named(INFO));
                (operation.consumes, operation.produces) =
                    (&OBJECT_MEDIA_TYPES[..1], &OBJECT_MEDIA_TYPES[..1]);
                operation
            }
        }
    }
}

/// `/apis/apps/v1/`
pub(super) fn version_operation(group: &str, version: &str, schemas: &mut Schemas) -> Operation {
    let names = OperationNames::new(group, version);
    let id = format!("get{}APIResources", names.id_part);
    read(&id, &names.tag, schemas.meta("APIResourceList"))
}

fn read(id: &str, tag: &str, response: BodySchema) -> Operation {
    Operation {
        method: "get",
        id: id.to_owned(),
        tag: tag.to_owned(),
        action: "",
        kind: Value::Null,
        parameters: Vec::new(),
        body: None,
        consumes: &OBJECT_MEDIA_TYPES,
        produces: &OBJECT_MEDIA_TYPES,
        codes: &[200],
        response,
    }
}

/// The kind of a discovery document, by the name of its schema.
pub(super) fn kind(schema: &str) -> Option<Value> {
    let kind = schema.strip_prefix(META)?.strip_prefix('.')?;
    matches!(kind, "APIGroup" | "APIGroupList" | "APIVersions")
        .then(|| json!({"group": "", "version": "v1", "kind": kind}))
}

/// The schemas that only these documents use, reduced like those in the registry.
pub(super) fn schema(name: &str) -> Option<&'static Value> {
    static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let text = || json!({"type": "string", "default": ""});
        let optional = || json!({"type": "string"});
        let listed = |item: Value| json!({"type": "array", "listType": "atomic", "items": item});
        let of = |name: &str| json!({"ref": format!("{META}.{name}"), "default": {}});
        let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
        let info: Map<_, _> = [
            "buildDate",
            "compiler",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "major",
            "minor",
            "platform",
        ]
        .map(|name| (name.to_owned(), text()))
        .into_iter()
        .chain(
            [
                "emulationMajor",
                "emulationMinor",
                "minCompatibilityMajor",
                "minCompatibilityMinor",
            ]
            .map(|name| (name.to_owned(), optional())),
        )
        .collect();
        [
            (
                format!("{META}.APIVersions"),
                object(
                    &["versions", "serverAddressByClientCIDRs"],
                    json!({
                        "apiVersion": optional(),
                        "kind": optional(),
                        "versions": listed(text()),
                        "serverAddressByClientCIDRs": listed(of("ServerAddressByClientCIDR")),
                    }),
                ),
            ),
            (
                format!("{META}.ServerAddressByClientCIDR"),
                object(
                    &["clientCIDR", "serverAddress"],
                    json!({"clientCIDR": text(), "serverAddress": text()}),
                ),
            ),
            (
                format!("{META}.APIGroupList"),
                object(
                    &["groups"],
                    json!({"apiVersion": optional(), "kind": optional(), "groups": listed(of("APIGroup"))}),
                ),
            ),
            (
                format!("{META}.APIGroup"),
                object(
                    &["name", "versions"],
                    json!({
                        "apiVersion": optional(),
                        "kind": optional(),
                        "name": text(),
                        "preferredVersion": of("GroupVersionForDiscovery"),
                        "serverAddressByClientCIDRs": listed(of("ServerAddressByClientCIDR")),
                        "versions": listed(of("GroupVersionForDiscovery")),
                    }),
                ),
            ),
            (
                format!("{META}.GroupVersionForDiscovery"),
                object(
                    &["groupVersion", "version"],
                    json!({"groupVersion": text(), "version": text()}),
                ),
            ),
            (
                INFO.to_owned(),
                object(
                    &[
                        "major",
                        "minor",
                        "gitVersion",
                        "gitCommit",
                        "gitTreeState",
                        "buildDate",
                        "goVersion",
                        "compiler",
                        "platform",
                    ],
                    info.into(),
                ),
            ),
        ]
        .into_iter()
        .collect()
    });
    SCHEMAS.get(name)
}
