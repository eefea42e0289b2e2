//! The fuzz targets, by name.

mod cache;
mod cel;
pub mod drop_in;
mod files;
pub mod planted;
mod reviews;
mod rules;
mod server;
mod texts;

use anyhow::bail;

use crate::engine::Target;

/// Names of all targets.
pub const NAMES: &[&str] = &[
    "json",
    "yaml",
    "protobuf",
    "json-patch",
    "merge-patch",
    "strategic-merge-patch",
    "apply",
    "managed-fields",
    "schemas",
    "selectors",
    "list-parameters",
    "requests",
    "tokens",
    "webhooks",
    "policies",
    "reviews",
    "cache",
    "cel",
    "rules",
    "field-paths",
    "texts",
    "journal",
    "kubeconfig",
    "drop-in",
];

/// Creates the target of this name.
pub fn make(name: &str) -> anyhow::Result<Box<dyn Target>> {
    if let Some(target) = planted::make(name) {
        return Ok(target);
    }
    if let Some(target) = server::make(name) {
        return Ok(target);
    }
    Ok(match name {
        "cache" => Box::new(cache::Cache::new()),
        "cel" => Box::new(cel::Cel::new()),
        "reviews" => Box::new(reviews::Reviews::new()?),
        "rules" => Box::new(rules::SchemaRules),
        "field-paths" => Box::new(texts::Texts::field_paths()),
        "texts" => Box::new(texts::Texts::operators()),
        "journal" => Box::new(files::Journal::new()?),
        "drop-in" => Box::new(drop_in::DropIn::new()?),
        "kubeconfig" => Box::new(files::Kubeconfig::new()?),
        _ => bail!("unknown target `{name}`: list the targets with `--list`"),
    })
}

/// Removes quoted text and numbers, which differ from object to object. Two inputs with the same digest count as the
/// same behaviour.
fn digest(text: &str) -> String {
    let mut digest = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' | '`' | '\'' => {
                quoted = !quoted;
                digest.push('"');
            }
            _ if quoted => {}
            '0'..='9' => {
                if !digest.ends_with('0') {
                    digest.push('0');
                }
            }
            c if c.is_control() => {}
            c => digest.push(c),
        }
        if digest.len() > 160 {
            break;
        }
    }
    digest
}
