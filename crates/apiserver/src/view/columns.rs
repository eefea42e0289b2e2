//! The columns of a kind's table.

use serde_json::{Value, json};

use crate::registry::Resource;

/// The column definitions, without the real server's `description`.
pub(super) fn definitions(resource: &Resource) -> Value {
    if resource.is_custom {
        return custom(resource);
    }
    let columns = resource.facts.columns.unwrap_or("Name Created_At:date");
    columns.split(' ').map(column).collect()
}

/// Whether a built-in kind has a table of its own.
pub(super) fn has_own_table(resource: &Resource) -> bool {
    resource.facts.columns.is_some()
}

/// Parses `Name[:type]`, with a leading `+` for columns of wide output only; `_` is a space.
fn column(text: &str) -> Value {
    let (priority, text) = text.strip_prefix('+').map_or((0, text), |text| (1, text));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    let name = name.replace('_', " ");
    let format = if matches!(&*name, "Name" | "Attacher") {
        "name"
    } else {
        ""
    };
    json!({"name": name, "type": kind, "format": format, "priority": priority})
}

/// The name and a CRD's printer columns, or the age if it has none.
fn custom(resource: &Resource) -> Value {
    let name = column("Name");
    if resource.printer_columns.is_empty() {
        return json!([name, column("Age:date")]);
    }
    let own = resource.printer_columns.iter().map(|column| {
        json!({
            "name": &*column.name,
            "type": &*column.kind,
            "format": &*column.format,
            "description": match &*column.description {
                "" => format!("Custom resource definition column (in JSONPath format): {}", column.json_path),
                description => description.to_owned(),
            },
            "priority": column.priority,
        })
    });
    std::iter::once(name).chain(own).collect()
}
