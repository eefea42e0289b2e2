//! Attribute macros for custom resource types.
//!
//! They add the derives and crate paths that such a type needs, all from the facade, so that users depend on `windlass`
//! alone. They only prepend attributes and do not change the item: further `kube`, `serde` and `schemars` attributes
//! work as usual. If the item has an `x_kube` attribute, its schema comes from kube's `KubeSchema` derive, which
//! understands it.

use proc_macro::{TokenStream, TokenTree};

const DERIVES: &str = "
    #[derive(
        ::core::clone::Clone, ::core::fmt::Debug, ::core::cmp::PartialEq,
        ::windlass::serde::Serialize, ::windlass::serde::Deserialize,
    )]
    #[serde(crate = \"::windlass::serde\", rename_all = \"camelCase\")]
";

const SCHEMA_CRATE: &str = "#[schemars(crate = \"::windlass::schemars\")]";

/// The crates of the code that `KubeSchema` generates.
const RULES_CRATES: &str = "x_kube(crates(
    kube_core = \"::windlass::kube::core\",
    schemars = \"::windlass::schemars\",
    serde = \"::windlass::serde\",
    serde_json = \"::windlass::serde_json\",
))";

/// That code also names `schemars` without a path. A glob, because it may be there more than once.
const RULES_IMPORT: &str = "#[allow(unused_imports)] use ::windlass::kube_schema_names::*;";

const KUBE_CRATES: &str = "crates(
    kube = \"::windlass::kube\",
    kube_core = \"::windlass::kube::core\",
    k8s_openapi = \"::windlass::k8s_openapi\",
    schemars = \"::windlass::schemars\",
    serde = \"::windlass::serde\",
    serde_json = \"::windlass::serde_json\",
)";

/// Makes a struct the `spec` of a custom resource. Generates the resource's type with the name in `kind`, and its CRD
/// as `Kind::crd()`.
///
/// The arguments are those of `kube`'s `CustomResource` derive: `group`, `version`, `kind`, and often `namespaced` and
/// `status = "…"`. Field names are camelCase in the API. The facade's page has an example.
///
/// `x_kube` attributes work as with kube's `KubeSchema` derive: CEL rules of the struct and of its fields, and the merge
/// strategy of a list or map. The facade's page has an example of these too.
#[proc_macro_attribute]
pub fn resource(arguments: TokenStream, item: TokenStream) -> TokenStream {
    // A rule of the whole object: kube derives `KubeSchema` for the generated type, too.
    let has_rules = mentions(&arguments, "validation") || kube_attribute_mentions(&item, "validation");
    let (import, root) = if has_rules {
        (RULES_IMPORT, format!("#[kube(attr = r#\"{RULES_CRATES}\"#)]"))
    } else {
        ("", String::new())
    };
    let attributes =
        format!("#[derive(::windlass::kube::CustomResource)] #[kube({KUBE_CRATES}, {arguments})] {root}");
    prepend(import, &attributes, item)
}

/// Makes a struct or enum usable inside a custom resource: as its status, or as a nested type. A struct may have
/// `x_kube` attributes; see [`macro@resource`].
#[proc_macro_attribute]
pub fn api_type(_: TokenStream, item: TokenStream) -> TokenStream {
    prepend("", "", item)
}

fn prepend(import: &str, attributes: &str, item: TokenStream) -> TokenStream {
    let schema = if mentions(&item, "x_kube") {
        format!(
            "{RULES_IMPORT} {DERIVES} #[derive(::windlass::kube::KubeSchema)] {SCHEMA_CRATE} #[{RULES_CRATES}]"
        )
    } else {
        format!("{import} {DERIVES} #[derive(::windlass::schemars::JsonSchema)] {SCHEMA_CRATE}")
    };
    let mut tokens = TokenStream::new();
    for attributes in [&schema, attributes] {
        let attributes = attributes.parse::<TokenStream>();
        tokens.extend(attributes.expect("the attributes are valid tokens"));
    }
    tokens.extend(item);
    tokens
}

/// Whether this identifier is anywhere in the tokens.
fn mentions(tokens: &TokenStream, identifier: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident.to_string() == identifier,
        TokenTree::Group(group) => mentions(&group.stream(), identifier),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether this identifier is in a `#[kube(…)]` attribute of the item.
fn kube_attribute_mentions(item: &TokenStream, identifier: &str) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => {
            let mut attribute = group.stream().into_iter();
            let is_kube = attribute.next().is_some_and(|name| name.to_string() == "kube");
            is_kube && mentions(&attribute.collect(), identifier)
        }
        _ => false,
    })
}
