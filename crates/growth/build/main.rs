//! Copies the API server's source with a counter in every function, loop and closure.

mod counters;
mod tokens;

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() {
    let server = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../apiserver");
    let server = server
        .canonicalize()
        .expect("the apiserver crate is next to this crate");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("src");
    println!("cargo::rerun-if-changed={}", server.join("src").display());
    println!("cargo::rerun-if-changed=build");
    // Deleted files must not remain.
    let _ = fs::remove_dir_all(&out);
    let mut sites = Vec::new();
    copy(&server.join("src"), Path::new(""), &out, &mut sites);
    let mut table = format!("static SITES: [&str; {}] = [\n", sites.len());
    for site in sites {
        writeln!(table, "    {site:?},").expect("writing to a string never fails");
    }
    table.push_str("];\n");
    fs::write(out.with_file_name("sites.rs"), table).expect("the output folder is writable");
}

fn copy(source: &Path, within: &Path, out: &Path, sites: &mut Vec<String>) {
    fs::create_dir_all(out.join(within)).expect("the output folder is writable");
    let mut entries: Vec<_> = fs::read_dir(source.join(within))
        .expect("the source is readable")
        .map(|entry| entry.expect("the source is readable").path())
        .collect();
    entries.sort();
    for entry in entries {
        let within = within.join(entry.file_name().expect("an entry of a folder"));
        if entry.is_dir() {
            copy(source, &within, out, sites);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).expect("the source is readable");
            let counted = counters::insert(&text, &within, entry.parent().expect("in a folder"), sites);
            fs::write(out.join(within), counted).expect("the output folder is writable");
        }
    }
}
