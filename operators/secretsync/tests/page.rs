//! docs/secretsync.md is correct: its examples parse, and its flags and files exist.

use std::path::Path;

use windlass::serde_json::{Value, to_value};
use windlass_secretsync::{SecretSync, SecretSyncSpec, api};
use windlass_suite::{output, program};

const PAGE: &str = include_str!("../../../docs/secretsync.md");

#[test]
fn page_example_parses_and_shows_every_field() {
    let (_, rest) = PAGE.split_once("```yaml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let documented: Value = serde_yaml_ng::from_str(example).expect("YAML");
    let sync: SecretSync = serde_yaml_ng::from_str(example).expect("a SecretSync");
    let fields = |value: &Value| {
        value
            .as_object()
            .map(|fields| fields.keys().cloned().collect::<Vec<_>>())
    };
    // Unknown fields are dropped by parsing, and would be missing here.
    assert_eq!(to_value(&sync.spec).expect("JSON"), documented["spec"]);
    let mut whole = to_value(SecretSyncSpec::default()).expect("JSON");
    for field in ["sourceSelector", "names", "namespaceSelector"] {
        whole[field] = Value::Null;
    }
    assert_eq!(fields(&documented["spec"]), fields(&whole));
}

#[tokio::test]
async fn page_flags_exist() {
    let (_, help, _) = output(program(env!("CARGO_BIN_EXE_secretsync"), &["--help"])).await;
    let flags = PAGE
        .split("`--")
        .skip(1)
        .filter_map(|rest| rest.split(['`', ' ']).next());
    let flags: Vec<_> = flags.collect();
    assert!(flags.len() > 4, "{flags:?}");
    for flag in flags {
        assert!(help.contains(&format!("--{flag}")), "--{flag}");
    }
}

#[test]
fn page_names_and_files_exist() {
    for name in [api::SYNC_ANNOTATION, api::SOURCE_UID_LABEL, api::GROUP] {
        assert!(PAGE.contains(name), "{name}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let paths = PAGE.split(|c: char| c.is_whitespace() || c == '`');
    let paths: Vec<_> = paths
        .filter(|word| word.starts_with("operators/secretsync/"))
        .collect();
    assert!(!paths.is_empty());
    for path in paths {
        assert!(root.join(path).exists(), "{path}");
    }
}

/// The page's examples of mistakes are refused, and its valid values are not.
#[test]
fn page_values_of_the_consent_are_judged_as_it_says() {
    for value in [
        "team-*",
        "True",
        "yes",
        "no",
        "none",
        "enable",
        "all",
        "true,team-d",
    ] {
        assert!(PAGE.contains(&format!("`{value}`")), "{value}");
        assert!(api::check_consent(value).is_err(), "{value}");
    }
    for value in ["true", "team-a", "team-a,team-b", "*", "false"] {
        assert!(PAGE.contains(&format!("`{value}`")), "{value}");
        assert_eq!(api::check_consent(value), Ok(()), "{value}");
    }
}
