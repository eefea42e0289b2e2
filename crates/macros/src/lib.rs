//! Attributes that make a struct a Kubernetes resource, or a part of one.
//!
//! They write the derives and paths that such a struct needs, with everything taken from the facade, so that an author
//! depends on `windlass` alone. Nothing is parsed or changed: attributes are put in front of the item, and what `kube`,
//! `serde` and `schemars` accept besides can be added below, as always.

use proc_macro::TokenStream;

const PARTS: &str = "
    #[derive(
        ::core::clone::Clone, ::core::fmt::Debug, ::core::cmp::PartialEq,
        ::windlass::serde::Serialize, ::windlass::serde::Deserialize, ::windlass::schemars::JsonSchema,
    )]
    #[serde(crate = \"::windlass::serde\", rename_all = \"camelCase\")]
    #[schemars(crate = \"::windlass::schemars\")]
";

const CRATES: &str = "crates(
    kube = \"::windlass::kube\",
    kube_core = \"::windlass::kube::core\",
    k8s_openapi = \"::windlass::k8s_openapi\",
    schemars = \"::windlass::schemars\",
    serde = \"::windlass::serde\",
    serde_json = \"::windlass::serde_json\",
)";

/// Makes a struct the `spec` of a custom resource: the resource's own type gets the name in `kind`, and its CRD is
/// `Kind::crd()`.
///
/// The arguments are those of `kube`'s `CustomResource` derive: `group`, `version`, `kind`, and often `namespaced` and
/// `status = "…"`. Field names are camelCase in the API. The facade's page has an example.
#[proc_macro_attribute]
pub fn resource(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let attributes = format!("#[derive(::windlass::kube::CustomResource)] #[kube({CRATES}, {arguments})]");
    before(&[PARTS, &attributes], item)
}

/// Makes a struct or enum a part of a custom resource: its status, or something inside of it.
#[proc_macro_attribute]
pub fn part(_: TokenStream, item: TokenStream) -> TokenStream {
    before(&[PARTS], item)
}

fn before(attributes: &[&str], item: TokenStream) -> TokenStream {
    let mut tokens = TokenStream::new();
    for attribute in attributes {
        tokens.extend(attribute.parse::<TokenStream>().expect("written here"));
    }
    tokens.extend(item);
    tokens
}
