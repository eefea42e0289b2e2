//! `windlass assets` from the outside.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// Runs the command with `path` as the only folder with programs.
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
fn assets_installs_both_programs_and_prints_only_the_folder() {
    let (root, path) = (temp(), temp());
    let folder = root.path().join("a/b");
    let output = assets(&folder, path.path(), &[]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let folder = fs::canonicalize(&folder).unwrap();
    assert_eq!(text(&output.stdout), format!("{}\n", folder.display()));
    let line = format!("export KUBEBUILDER_ASSETS={}", folder.display());
    assert!(stderr.contains(&line), "{stderr}");
    assert!(stderr.contains("not found in the PATH"), "{stderr}");

    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["etcd", "kube-apiserver"], "no temporary files are left");
    for (name, version) in [
        ("etcd", "etcd Version: 3.6.16\n"),
        ("kube-apiserver", "Kubernetes v1.36.4\n"),
    ] {
        let output = Command::new(folder.join(name)).arg("--version").output().unwrap();
        assert_eq!(text(&output.stdout), version);
    }
}

#[test]
fn assets_links_kubectl_and_keeps_an_existing_one() {
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
fn assets_replaces_foreign_programs_only_if_forced() {
    let (root, path) = (temp(), temp());
    let etcd = root.path().join("etcd");
    assert!(assets(root.path(), path.path(), &[]).status.success());
    // Another version of windlass: another file with the same marker.
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
    let stderr = text(&output.stderr);
    for part in ["is not windlass but another kube-apiserver", "--force"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(fs::read_to_string(&server).unwrap(), "the real one");
    assert!(!other.path().join("etcd").exists(), "the folder is unchanged");

    assert!(assets(other.path(), path.path(), &["--force"]).status.success());
    assert_ne!(fs::read(&server).unwrap(), b"the real one");
}

#[test]
fn unusable_folder_is_named_in_the_error() {
    let (root, path) = (temp(), temp());
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("folder");
    let output = assets(&below, path.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(&format!("cannot create the folder {}", below.display())),
        "{stderr}"
    );

    fs::create_dir_all(root.path().join("etcd/full")).unwrap();
    let output = assets(root.path(), path.path(), &["--force"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("cannot write") && stderr.contains("etcd"),
        "{stderr}"
    );
    assert!(output.stdout.is_empty());
}
