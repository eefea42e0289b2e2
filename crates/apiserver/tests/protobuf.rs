//! Every served kind decodes from protobuf to its JSON form, checked with Kubernetes' own test data.
//!
//! The Go modules contain, for each kind and several releases, an object with all fields set in both encodings. The
//! test reads them from Go's module cache; they are not part of this repository. Without them each test is ignored, or
//! fails if `WINDLASS_REQUIRE_REAL=1`. Fetch them with `hack/control-plane/build` or
//! `cd hack/control-plane && go mod download k8s.io/api k8s.io/apiextensions-apiserver`.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;

/// Served kinds for which Kubernetes has no test data.
const WITHOUT_DATA: [&str; 1] = ["apiregistration.k8s.io/v1/APIService"];

fn main() -> ExitCode {
    let folders = data_folders();
    let mut trials = Vec::new();
    for kind in served_kinds()
        .into_iter()
        .filter(|kind| !WITHOUT_DATA.contains(&&**kind))
    {
        let folders = folders.clone();
        trials.push(Trial::ignorable_test(kind.clone(), move || match folders {
            Ok(folders) => decodes_to_its_json(&kind, &folders).map(|()| Completion::Completed),
            Err(why) if std::env::var_os("WINDLASS_REQUIRE_REAL").is_some() => Err(why.into()),
            Err(why) => Ok(Completion::ignored_with(why)),
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Returns the served kinds, such as `apps/v1/Deployment`, from the crate's registry data.
fn served_kinds() -> Vec<String> {
    let packed = include_bytes!("../data/protobuf.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .expect("shipped with the crate");
    let facts: Value = serde_json::from_str(&text).expect("shipped with the crate");
    let kinds = facts["kinds"].as_object().expect("shipped with the crate");
    kinds.keys().cloned().collect()
}

/// Returns the folders with test data, one per release, in the modules that `hack/control-plane/go.mod` pins.
fn data_folders() -> Result<Vec<PathBuf>, String> {
    let cache = match std::env::var_os("GOMODCACHE") {
        Some(cache) => cache.into(),
        None => PathBuf::from(go_env("GOMODCACHE")?),
    };
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane/go.mod");
    let pins = fs::read_to_string(&pins).map_err(|error| format!("{}: {error}", pins.display()))?;
    let mut folders = Vec::new();
    for (module, inner) in [
        ("k8s.io/api", "testdata"),
        ("k8s.io/apiextensions-apiserver", "pkg/apis/testdata"),
    ] {
        let version = pins
            .lines()
            .find_map(|line| line.strip_prefix(&format!("\t{module} => {module} ")))
            .ok_or_else(|| format!("go.mod does not pin {module}"))?;
        let folder = cache.join(format!("{module}@{version}")).join(inner);
        let releases = fs::read_dir(&folder)
            .map_err(|error| format!("no test data at {}: {error}", folder.display()))?;
        folders.extend(
            releases
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|p| p.is_dir()),
        );
    }
    Ok(folders)
}

fn go_env(name: &str) -> Result<String, String> {
    let output = Command::new("go").args(["env", name]).output().map_err(|error| {
        format!("cannot run `go env` to find the module cache: {error}; install Go or set GOMODCACHE")
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn decodes_to_its_json(kind: &str, folders: &[PathBuf]) -> Result<(), Failed> {
    let file = match kind.split('/').collect::<Vec<_>>()[..] {
        ["meta.k8s.io", version, kind] | [version, kind] => format!("core.{version}.{kind}"),
        [group, version, kind] => format!("{group}.{version}.{kind}"),
        _ => return Err(format!("invalid kind {kind}: expected group/version/kind or version/kind").into()),
    };
    let mut compared = 0;
    for folder in folders {
        let path = |ending: &str| folder.join(format!("{file}{ending}"));
        let Ok(body) = fs::read(path(".pb")) else { continue };
        // Fields of older releases that this one does not know are dropped; `.after_roundtrip.json` is without them.
        let json = [path(".after_roundtrip.json"), path(".json")];
        let json = fs::read(
            json.iter()
                .find(|path| path.exists())
                .ok_or("the .pb file has no .json file beside it")?,
        )?;
        let expected: Value = serde_json::from_slice(&json)?;
        let read = windlass_apiserver::protobuf::decode(&body, "", "")?;
        let differences = differences(&expected, &read);
        if !differences.is_empty() {
            return Err(format!("{}:\n{}", path(".pb").display(), differences.join("\n")).into());
        }
        compared += 1;
    }
    if compared == 0 {
        return Err(format!("no {file}.pb in the test data").into());
    }
    Ok(())
}

/// Returns the paths at which two trees differ, with both values.
fn differences(expected: &Value, read: &Value) -> Vec<String> {
    let (mut expected, read) = (leaves(expected), leaves(read));
    let mut out = Vec::new();
    for (path, value) in read {
        match expected.remove(&path) {
            Some(other) if other == value => {}
            other => out.push(format!("  {path}: expected {other:?}, read {value}")),
        }
    }
    out.extend(
        expected
            .into_iter()
            .map(|(path, value)| format!("  {path}: expected {value}, read nothing")),
    );
    out
}

fn leaves(value: &Value) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                open.extend(
                    fields
                        .iter()
                        .map(|(name, value)| (format!("{path}.{name}"), value)),
                );
            }
            Value::Array(list) if !list.is_empty() => {
                open.extend(
                    list.iter()
                        .enumerate()
                        .map(|(i, value)| (format!("{path}[{i}]"), value)),
                );
            }
            leaf => {
                out.insert(path, leaf.to_string());
            }
        }
    }
    out
}
