//! The `windlass` command as its user meets it.

use std::process::{Command, Output};

fn windlass(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_checks_its_claims_and_succeeds() {
    let output = windlass(&["demo"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("5 of 5 claims held"), "{shown}");
    for event in [
        "created Foo demo/example-foo",
        "deleted the Deployment by hand",
        "✔ the drift was repaired",
    ] {
        assert!(shown.contains(event), "{shown}");
    }
}

#[test]
fn help_names_the_commands_and_mistakes_are_refused() {
    let help = windlass(&["--help"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("demo"), "{}", text(&help.stdout));

    assert!(text(&windlass(&["--version"]).stdout).starts_with("windlass "));

    for mistake in [
        &["demon"][..],
        &["demo", "--patience", "0"],
        &["demo", "--patience", "soon"],
        &[],
    ] {
        let output = windlass(mistake);
        assert_eq!(output.status.code(), Some(2), "{mistake:?}");
        assert!(!output.stderr.is_empty(), "{mistake:?}");
    }
}
