//! The `windlass` command from the outside.

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
fn help_lists_commands_and_invalid_arguments_are_rejected() {
    let help = windlass(&["--help"]);
    assert!(help.status.success());
    for command in ["demo", "run", "up", "assets"] {
        assert!(
            text(&help.stdout).contains(&format!("\n  {command} ")),
            "{}",
            text(&help.stdout)
        );
    }

    assert!(text(&windlass(&["--version"]).stdout).starts_with("windlass "));

    for mistake in [
        &["demon"][..],
        &["demo", "--timeout", "0"],
        &["demo", "--timeout", "soon"],
        &["demo", "--pace", "hasty"],
        &[],
    ] {
        let output = windlass(mistake);
        assert_eq!(output.status.code(), Some(2), "{mistake:?}");
        assert!(!output.stderr.is_empty(), "{mistake:?}");
    }
}
