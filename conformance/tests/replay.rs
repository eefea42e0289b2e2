//! Every scenario, run on the embedded server, says what the real server said when it was recorded.

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use windlass_conformance::{
    Scenario,
    compare::{Differences, compare},
    corpus::{self, Shelf},
    normalise, run, target,
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = corpus::scenarios(Shelf::Scenarios, &[]).expect("the scenarios can be read");
    let meant = Differences::read(&corpus::root().join("differences.toml"));
    let meant = Arc::new(meant.expect("the differences can be read"));
    // Command lines are compared word for word, so that only the kubectl that they were recorded with can run them.
    let no_kubectl = windlass_cluster::matching_kubectl().err();
    let no_kubectl: Option<Arc<str>> = no_kubectl.map(|error| error.to_string().into());

    let named: Vec<_> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let known = meant.clone();
    let mut trials = vec![Trial::test(
        "differences name scenarios that exist",
        move || match known
            .scenarios()
            .find(|name| !named.iter().any(|known| known == name))
        {
            Some(name) => Err(format!("there is no scenario {name}").into()),
            None => Ok(()),
        },
    )];
    for scenario in scenarios {
        let name = scenario.name.clone();
        let meant = meant.clone();
        trials.push(match &no_kubectl {
            Some(reason) if scenario.needs_kubectl() => {
                let reason = reason.clone();
                Trial::ignorable_test(name, move || Ok(Completion::ignored_with(&*reason)))
            }
            _ => Trial::test(name, move || replay(&scenario, &meant)),
        });
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn replay(scenario: &Scenario, meant: &Differences) -> Result<(), Failed> {
    let expected = corpus::load(&scenario.name)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Without a socket, nothing but the clock is waited for, and a timeout takes no time.
        .start_paused(!scenario.needs_kubectl())
        .build()?;
    let raw = runtime.block_on(async { run::run(scenario, &target::embedded()).await })?;
    let got = normalise::normalise(scenario, raw);
    let (differences, unused) = meant.apply(&scenario.name, compare(&expected, &got));
    if differences.is_empty() && unused.is_empty() {
        return Ok(());
    }
    let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
    Err(format!(
        "(- real, + ours)\n{}\nexcused for nothing: {unused:?}",
        differences.join("\n")
    )
    .into())
}
