//! The rows of admission policies and their bindings.

use serde_json::Value;

use super::{
    error_list::{list, text},
    row::Row,
};

/// What a table shows for what is not set.
const UNSET: &str = "<unset>";

/// The cells of a policy with this list of validations or mutations.
pub(super) fn of_policy(row: &Row<'_>, parts: &str) -> Vec<Value> {
    let param_kind = match row.object.pointer("/spec/paramKind") {
        Some(kind) => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])),
        None => UNSET.to_owned(),
    };
    vec![row.name(), row.count(parts).into(), param_kind.into(), row.age()]
}

/// The cells of a binding.
pub(super) fn of_binding(row: &Row<'_>) -> Vec<Value> {
    let (namespace, name) = (
        row.text("/spec/paramRef/namespace"),
        row.text("/spec/paramRef/name"),
    );
    let selector = row.object.pointer("/spec/paramRef/selector");
    let params = match (namespace, name, selector) {
        (_, "", Some(selector)) => label_selector_text(selector),
        (_, "", None) => UNSET.to_owned(),
        // Whether the kind of the parameters has namespaces is not known here.
        ("", name, _) => format!("*/{name}"),
        (namespace, name, _) => format!("{namespace}/{name}"),
    };
    let policy = row.text("/spec/policyName").into();
    vec![row.name(), policy, params.into(), row.age()]
}

/// A label selector as Go prints it.
fn label_selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{key}: {},", text(value)))
        .collect();
    let labels = labels.concat();
    let requirements = list(&selector["matchExpressions"]).iter().map(|requirement| {
        let values: Vec<_> = list(&requirement["values"]).iter().map(text).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(&requirement["key"]),
            text(&requirement["operator"]),
            values.join(" ")
        )
    });
    let requirements: String = requirements.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{\
         {requirements}}},}}"
    )
}
