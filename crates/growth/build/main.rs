//! Copies the source of the API server, and of our crates that it uses, with a counter in every function, loop and
//! closure.

mod counters;
mod tokens;

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The crates that become modules of this one, by their names in the source, and their folders.
const MODULES: [(&str, &str); 2] = [("windlass_api", "api"), ("windlass_rights", "rights")];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("src");
    println!("cargo::rerun-if-changed=build");
    // Deleted files must not remain.
    let _ = fs::remove_dir_all(&out);
    let mut sites = Vec::new();
    copy(&source("apiserver"), Path::new(""), &out, None, &mut sites);
    let root = out.join("lib.rs");
    let mut text = fs::read_to_string(&root).expect("just written");
    for (module, folder) in MODULES {
        copy(
            &source(folder),
            Path::new(""),
            &out.join(module),
            Some(module),
            &mut sites,
        );
        let folder = out.join(module);
        fs::rename(folder.join("lib.rs"), folder.join("mod.rs")).expect("the output folder is writable");
        writeln!(text, "mod {module};").expect("writing to a string never fails");
    }
    fs::write(root, text).expect("the output folder is writable");
    let mut table = format!("static SITES: [&str; {}] = [\n", sites.len());
    for site in sites {
        writeln!(table, "    {site:?},").expect("writing to a string never fails");
    }
    table.push_str("];\n");
    fs::write(out.with_file_name("sites.rs"), table).expect("the output folder is writable");
}

/// The source folder of a crate next to this one.
fn source(krate: &str) -> PathBuf {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("..");
    let source = crates.join(krate).join("src");
    let source = source.canonicalize().expect("the crate is next to this crate");
    println!("cargo::rerun-if-changed={}", source.display());
    source
}

/// Copies the folder `within` of a crate, which becomes the root of this one, or a module.
fn copy(source: &Path, within: &Path, out: &Path, module: Option<&str>, sites: &mut Vec<String>) {
    fs::create_dir_all(out.join(within)).expect("the output folder is writable");
    let mut entries: Vec<_> = fs::read_dir(source.join(within))
        .expect("the source is readable")
        .map(|entry| entry.expect("the source is readable").path())
        .collect();
    entries.sort();
    for entry in entries {
        let within = within.join(entry.file_name().expect("an entry of a folder"));
        if entry.is_dir() {
            copy(source, &within, out, module, sites);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).expect("the source is readable");
            let folder = entry.parent().expect("in a folder");
            let counted = counters::insert(&text, &within, folder, module, sites);
            fs::write(out.join(within), counted).expect("the output folder is writable");
        }
    }
}
