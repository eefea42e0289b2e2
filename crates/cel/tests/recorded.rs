//! Compares the crate with kube-apiserver, on what `hack/cel/record` has recorded: `.ci/run cel` does both.
//!
//! `WINDLASS_CEL_CASES` names the folder with the recordings. Without it, the cases are reported as ignored.
//! Every difference has an entry with its reason in `recorded/differences.toml`, and every entry a difference.

mod recorded {
    mod differences;
    mod expressions;
    mod json_values;
    mod rules;
    mod validate;

    use std::{
        fs,
        path::{Path, PathBuf},
        process::ExitCode,
    };

    use libtest_mimic::{Arguments, Failed, Trial};
    use serde_json::Value as Json;

    pub(super) fn run() -> ExitCode {
        let folder = std::env::var_os("WINDLASS_CEL_CASES").map(PathBuf::from);
        let trial = |name, compare: fn(&Path) -> Result<(), Failed>| {
            let folder = folder.clone();
            let is_missing = folder.is_none();
            Trial::test(name, move || {
                compare(&folder.ok_or("WINDLASS_CEL_CASES is not set")?)
            })
            .with_ignored_flag(is_missing)
        };
        let trials = vec![
            trial("expressions_have_the_recorded_outcome", expressions::compare_all),
            trial("rules_compile_to_the_recorded_cost_or_error", rules::compare_all),
            trial(
                "objects_violate_the_recorded_rules_at_the_recorded_cost",
                validate::compare_all,
            ),
        ];
        if folder.is_none() {
            eprintln!(
                "ignored: WINDLASS_CEL_CASES is not set; `.ci/run cel` records the cases and runs them"
            );
        }
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    }

    /// The recorded cases of a file. A few are nested deeper than `serde_json` reads.
    fn lines(path: &Path) -> Result<Vec<Json>, Failed> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }
}

fn main() -> std::process::ExitCode {
    recorded::run()
}
