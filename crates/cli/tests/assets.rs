//! `windlass assets` as its user meets it.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// Runs the command on a machine where nothing but `path` has programs.
fn assets(folder: &Path, path: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("assets")
        .arg(folder)
        .args(arguments)
        .env_remove("KUBEBUILDER_ASSETS")
        .env("XDG_CACHE_HOME", path)
        .env("PATH", path)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn temp() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn the_folder_gets_both_programs_and_its_name_is_all_that_is_printed() {
    let (root, path) = (temp(), temp());
    let folder = root.path().join("a/b");
    let output = assets(&folder, path.path(), &[]);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    let folder = fs::canonicalize(&folder).unwrap();
    assert_eq!(text(&output.stdout), format!("{}\n", folder.display()));
    let line = format!("export KUBEBUILDER_ASSETS={}", folder.display());
    assert!(told.contains(&line), "{told}");
    assert!(told.contains("none found in the PATH"), "{told}");

    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["etcd", "kube-apiserver"],
        "and nothing is left beside them"
    );
    for (name, version) in [
        ("etcd", "etcd Version: 3.6.16\n"),
        ("kube-apiserver", "Kubernetes v1.36.4\n"),
    ] {
        let output = Command::new(folder.join(name)).arg("--version").output().unwrap();
        assert_eq!(text(&output.stdout), version);
    }
}

#[test]
fn a_kubectl_comes_along_and_one_that_is_there_stays() {
    let (root, path) = (temp(), temp());
    let kubectl = path.path().join("kubectl");
    fs::write(&kubectl, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();

    let output = assets(root.path(), path.path(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let brought = Command::new(root.path().join("kubectl")).output().unwrap();
    assert_eq!(text(&brought.stdout), "found\n");

    let other = temp();
    fs::write(other.path().join("kubectl"), "theirs").unwrap();
    assert!(assets(other.path(), path.path(), &["--force"]).status.success());
    assert_eq!(
        fs::read_to_string(other.path().join("kubectl")).unwrap(),
        "theirs"
    );
}

#[test]
fn it_renews_its_own_programs_and_leaves_others_alone_unless_forced() {
    let (root, path) = (temp(), temp());
    let etcd = root.path().join("etcd");
    assert!(assets(root.path(), path.path(), &[]).status.success());
    // As another version of it would be: the same mark in another file.
    let mut older = fs::read(&etcd).unwrap();
    older.extend(b"older");
    fs::remove_file(&etcd).unwrap();
    fs::write(&etcd, older).unwrap();
    let before = fs::metadata(&etcd).unwrap().ino();
    assert!(assets(root.path(), path.path(), &[]).status.success());
    assert_ne!(fs::metadata(&etcd).unwrap().ino(), before);

    let other = temp();
    let server = other.path().join("kube-apiserver");
    fs::write(&server, "the real one").unwrap();
    let output = assets(other.path(), path.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    for part in ["kube-apiserver is another", "not windlass", "--force"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(fs::read_to_string(&server).unwrap(), "the real one");
    assert!(
        !other.path().join("etcd").exists(),
        "a refusal leaves the folder as it was"
    );

    assert!(assets(other.path(), path.path(), &["--force"]).status.success());
    assert_ne!(fs::read(&server).unwrap(), b"the real one");
}

#[test]
fn a_folder_that_cannot_be_filled_is_named() {
    let (root, path) = (temp(), temp());
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("folder");
    let output = assets(&below, path.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("cannot make the folder {}", below.display())),
        "{told}"
    );

    fs::create_dir_all(root.path().join("etcd/full")).unwrap();
    let output = assets(root.path(), path.path(), &["--force"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("cannot write") && told.contains("etcd"), "{told}");
    assert!(output.stdout.is_empty());
}
