//! The operator's page says what is true: its examples are read, its flags are there, and so are its files.

use std::path::Path;

use windlass::serde_json::{Value, to_value};
use windlass_secretsync::{SecretSync, SecretSyncSpec, api};
use windlass_suite::{output, program};

const PAGE: &str = include_str!("../../../docs/secretsync.md");

#[test]
fn its_example_is_a_secret_sync_and_shows_every_field() {
    let (_, rest) = PAGE.split_once("```yaml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let said: Value = serde_yaml_ng::from_str(example).expect("YAML");
    let sync: SecretSync = serde_yaml_ng::from_str(example).expect("a SecretSync");
    let fields = |value: &Value| {
        value
            .as_object()
            .map(|fields| fields.keys().cloned().collect::<Vec<_>>())
    };
    // What is not a field is not read, and would be missing here.
    assert_eq!(to_value(&sync.spec).expect("JSON"), said["spec"]);
    let mut whole = to_value(SecretSyncSpec::default()).expect("JSON");
    for field in ["secretSelector", "names", "namespaceSelector"] {
        whole[field] = Value::Null;
    }
    assert_eq!(fields(&said["spec"]), fields(&whole));
}

#[tokio::test]
async fn its_flags_are_the_programs() {
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
fn the_names_and_files_that_it_tells_are_there() {
    for name in [api::SYNC, api::SOURCE_UID, api::GROUP] {
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
