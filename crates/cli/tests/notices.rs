//! `THIRD-PARTY-NOTICES.txt` lists every crate in the binary, with the license text that must accompany it.
//!
//! `WINDLASS_WRITE_NOTICES=1 cargo test -p windlass-cli --test integration notices` writes the file.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

/// The platform whose crates are listed: releases are for Linux.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// The accepted licenses, in order of preference if a crate offers several. The text of each but the first must be reproduced
/// with its copyright line.
const PREFERRED: [&str; 9] = [
    "Apache-2.0",
    "MIT",
    "BSD-3-Clause",
    "BSD-2-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "MPL-2.0",
];

const HEADER: &str = "\
Third-party notices

The windlass binary contains the following crates. Where a crate offers several licences, the one named here was chosen.
All are unmodified: the source form of each, also of those under the Mozilla Public License 2.0, is the crate of that name and
version as published, and in the repository that is named behind it.
";

#[test]
fn notices_list_every_crate_with_its_license() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("THIRD-PARTY-NOTICES.txt");
    let notices = notices();
    if std::env::var_os("WINDLASS_WRITE_NOTICES").is_some() {
        fs::write(&file, &notices).expect("the file can be written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(notices.lines()).find(|(a, b)| a != b);
    assert!(
        written == notices,
        "the crates of the binary changed: run `WINDLASS_WRITE_NOTICES=1 cargo test -p windlass-cli --test integration notices`; \
         first difference (written, now): {differs:?}"
    );
}

fn notices() -> String {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        let chosen = chosen(text("license"));
        assert!(
            !chosen.is_empty(),
            "{name} {version}: no accepted license in {:?}",
            text("license")
        );
        let (licences, repository) = (chosen.join(" AND "), text("repository"));
        writeln!(list, "{name} {version}: {licences}  {repository}").expect("into memory");
        let folder = Path::new(text("manifest_path"))
            .parent()
            .expect("a file in a folder");
        for text in texts_of(folder, &chosen) {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let apache = include_str!("../../../LICENSE");
    let mut notices = format!("{HEADER}\n{list}");
    for (text, crates) in &texts {
        write!(notices, "\n{}\n{}\n\n{text}", "-".repeat(100), crates.join(", ")).expect("into memory");
    }
    let rule = "-".repeat(100);
    write!(
        notices,
        "\n{rule}\nApache License 2.0, of all crates that are named with it\n\n{apache}"
    )
    .expect("into memory");
    notices
}

/// The published crates in the binary. `cargo metadata` has their licenses, but its features are those of the whole
/// workspace with its tests; `cargo tree` knows what is linked.
fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--format-version=1", "--filter-platform", PLATFORM]);
    let tree = [
        "tree",
        "-p",
        env!("CARGO_PKG_NAME"),
        "-e",
        "normal",
        "--target",
        PLATFORM,
    ];
    let tree = cargo(&[&tree[..], &["--prefix", "none", "-f", "{p}"]].concat());
    let linked: HashSet<_> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or_default()))
        .collect();
    let mut metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let Value::Array(all) = metadata["packages"].take() else {
        panic!("cargo lists packages")
    };
    let mut packages: Vec<_> = all
        .into_iter()
        .filter(|package| {
            let (name, version) = (text(package, "name"), text(package, "version"));
            linked.contains(&(name.as_str(), version.as_str())) && !package["source"].is_null()
        })
        .collect();
    packages.sort_by_key(|package| (text(package, "name"), text(package, "version")));
    packages
}

/// Runs cargo and returns its output.
fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).arg("--locked");
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("cargo writes text")
}

/// The licenses to comply with: the preferred alternative of each operand of `AND`.
fn chosen(expression: &str) -> Vec<&'static str> {
    let parts = expression.split(" AND ");
    let parts = parts.filter_map(|part| {
        let offered: Vec<_> = part
            .split([' ', '/', '(', ')'])
            .map(|word| word.trim_end_matches('+'))
            .collect();
        PREFERRED.into_iter().find(|licence| offered.contains(licence))
    });
    parts.collect()
}

/// The texts that must be reproduced for a crate, without the Apache License, which is appended once.
fn texts_of(folder: &Path, chosen: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the crate's source is here")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let name = name.to_ascii_uppercase();
            let is_notice = name.starts_with("NOTICE") || name.starts_with("COPYRIGHT");
            let is_licence = ["LICENSE", "LICENCE", "COPYING"]
                .iter()
                .any(|stem| name.starts_with(stem));
            // Skip the files of licenses that were not chosen.
            let is_other = [
                "APACHE",
                "MIT",
                "UNLICENSE",
                "BSD",
                "ZLIB",
                "BOOST",
                "ISC",
                "MPL",
                "UNICODE",
            ]
            .iter()
            .any(|word| {
                name.contains(word) && !chosen.iter().any(|c| c.to_ascii_uppercase().starts_with(word))
            });
            let is_apache = name.contains("APACHE") || chosen == ["Apache-2.0"];
            is_notice || is_licence && !is_other && !is_apache
        })
        .collect();
    names.sort();
    let texts = names
        .iter()
        .filter_map(|name| fs::read_to_string(folder.join(name)).ok());
    let texts = texts.map(|text| text.replace('\r', "").trim().to_owned() + "\n");
    texts.collect()
}
