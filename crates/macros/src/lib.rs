//! Attribute macros for custom resource types.
//!
//! They add the derives and crate paths that such a type needs, all from the facade, so that users depend on `windlass`
//! alone. They only prepend attributes and do not change the item: further `kube`, `serde` and `schemars` attributes
//! work as usual.

use proc_macro::TokenStream;

const API_TYPE_ATTRIBUTES: &str = "
    #[derive(
        ::core::clone::Clone, ::core::fmt::Debug, ::core::cmp::PartialEq,
        ::windlass::serde::Serialize, ::windlass::serde::Deserialize, ::windlass::schemars::JsonSchema,
    )]
    #[serde(crate = \"::windlass::serde\", rename_all = \"camelCase\")]
    #[schemars(crate = \"::windlass::schemars\")]
";

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
#[proc_macro_attribute]
pub fn resource(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let attributes =
        format!("#[derive(::windlass::kube::CustomResource)] #[kube({KUBE_CRATES}, {arguments})]");
    prepend(&[API_TYPE_ATTRIBUTES, &attributes], item)
}

/// Makes a struct or enum usable inside a custom resource: as its status, or as a nested type.
#[proc_macro_attribute]
pub fn api_type(_: TokenStream, item: TokenStream) -> TokenStream {
    prepend(&[API_TYPE_ATTRIBUTES], item)
}

fn prepend(attributes: &[&str], item: TokenStream) -> TokenStream {
    let mut tokens = TokenStream::new();
    for attribute in attributes {
        tokens.extend(
            attribute
                .parse::<TokenStream>()
                .expect("the attributes are valid tokens"),
        );
    }
    tokens.extend(item);
    tokens
}
