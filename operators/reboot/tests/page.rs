//! docs/reboot.md is complete.

use std::path::Path;

use serde_json::Value;
use windlass::prelude::*;
use windlass_reboot::{RebootPolicy, drain::BlockerReason, progress::ProgressReason, state::Phase};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("../../docs/reboot.md")
}

/// Collects the settable fields, such as `drain.timeout`, down to Kubernetes' own types.
fn fields(schema: &Value, above: &str, found: &mut Vec<String>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in properties {
        let path = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}.{name}")
        };
        let is_ours = field["properties"].is_object() && !name.to_lowercase().ends_with("selector");
        if is_ours {
            fields(field, &path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn page_documents_every_policy_field() {
    let crd = serde_json::to_value(RebootPolicy::crd()).expect("JSON");
    let mut found = Vec::new();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    fields(schema, "", &mut found);
    assert!(found.len() > 20, "{found:?}");
    let page = page();
    let missing: Vec<_> = found
        .iter()
        .filter(|field| {
            let last = field.rsplit('.').next().unwrap_or(field);
            !page.contains(&format!("`{field}`")) && !page.contains(&format!("`.{last}`"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The string literals that follow one of these in the sources.
fn literals_after(openings: &[&str]) -> Vec<String> {
    let files = ["controller.rs"].map(|file| format!("src/state_machine/{file}"));
    let more = ["nodes.rs", "policies.rs", "conditions.rs"].map(|file| format!("src/controller/{file}"));
    let mut words = Vec::new();
    for text in files.iter().chain(&more).map(|file| read(file)) {
        for opening in openings {
            for rest in text.split(opening).skip(1) {
                let mut quoted = rest.trim_start().splitn(3, '"');
                if let (Some(""), Some(word)) = (quoted.next(), quoted.next()) {
                    words.push(word.to_owned());
                }
            }
        }
    }
    words
}

#[test]
fn page_names_every_event_phase_condition_and_metric() {
    let mut names = literals_after(&["NodeEvent::normal(", "NodeEvent::warning(", ".warning(&**node,"]);
    assert!(names.len() >= 12, "{names:?}");
    names.extend(literals_after(&[
        "const MAINTENANCE_PLANNED: &str =",
        "const MAINTENANCE_IN_PROGRESS: &str =",
        "const DRAIN_IN_PROGRESS: &str =",
        "const DRAINED: &str =",
    ]));
    names.extend(Phase::ALL.map(|phase| phase.to_string()));
    names.extend(BlockerReason::ALL.map(|reason| reason.to_string()));
    let source = read("src/metrics.rs");
    let metrics = source
        .split('"')
        .filter(|word| word.starts_with("windlass_reboot_"));
    names.extend(metrics.map(ToOwned::to_owned));
    let page = page();
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !page.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// One section says what to do about each of them.
#[test]
fn page_says_what_to_do_in_every_state() {
    let page = page();
    let section = page.split("\n## What to do\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut names: Vec<String> = ProgressReason::ALL.iter().map(ToString::to_string).collect();
    names.extend(BlockerReason::ALL.map(|reason| reason.to_string()));
    let reasons = [
        "NodesFailed",
        "RebootsAborted",
        "Overlap",
        "AlertsIgnored",
        "InvalidState",
        "RebootAborted",
    ];
    names.extend(reasons.map(ToOwned::to_owned));
    let is_missing = |name: &&String| !section.contains(&format!("`{name}`"));
    let missing: Vec<_> = names.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn page_links_resolve() {
    let page = page();
    let titles: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")))
        .map(|title| title.to_lowercase().replace(' ', "-").replace([':', '`'], ""))
        .collect();
    let links = page
        .split("](#")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for link in links {
        assert!(
            titles.iter().any(|title| title == link),
            "#{link} is not in {titles:?}"
        );
    }
}
