//! Replays every scenario on the embedded server and compares the outcomes with the recordings of a real one.

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use windlass_conformance::{
    Scenario,
    compare::{IntentionalDifferences, compare},
    corpus::{self, ScenarioFolder},
    normalise, run, target,
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scenarios = corpus::scenarios(ScenarioFolder::Scenarios, &[]).expect("the scenarios can be read");
    let intentional = IntentionalDifferences::read(&corpus::root().join("differences.toml"));
    let intentional = Arc::new(intentional.expect("the differences can be read"));
    // kubectl's output is compared exactly, so only the recorded version can run these scenarios.
    let no_kubectl = windlass_cluster::matching_kubectl().err();
    let no_kubectl: Option<Arc<str>> = no_kubectl.map(|error| error.to_string().into());

    let named: Vec<_> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let known = intentional.clone();
    let mut trials = vec![Trial::test(
        "intentional differences refer to existing scenarios",
        move || match known
            .scenarios()
            .find(|name| !named.iter().any(|known| known == name))
        {
            Some(name) => Err(format!("differences.toml: unknown scenario {name}").into()),
            None => Ok(()),
        },
    )];
    for scenario in scenarios {
        let name = scenario.name.clone();
        let intentional = intentional.clone();
        trials.push(match &no_kubectl {
            Some(reason) if scenario.needs_kubectl() => {
                let reason = reason.clone();
                Trial::ignorable_test(name, move || Ok(Completion::ignored_with(&*reason)))
            }
            _ => Trial::test(name, move || replay(&scenario, &intentional)),
        });
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn replay(scenario: &Scenario, intentional: &IntentionalDifferences) -> Result<(), Failed> {
    let expected = corpus::load(&scenario.name)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Without a socket, only the clock is waited for, and with a paused clock timeouts are instant.
        .start_paused(!scenario.needs_kubectl() && scenario.webhooks.is_empty())
        .build()?;
    let raw = runtime.block_on(async { run::run(scenario, &target::embedded()).await })?;
    let got = normalise::normalise(scenario, raw);
    let (differences, unused) = intentional.apply(&scenario.name, compare(&expected, &got));
    if differences.is_empty() && unused.is_empty() {
        return Ok(());
    }
    let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
    Err(format!(
        "(- real, + ours)\n{}\nentries in differences.toml that match no difference: {unused:?}",
        differences.join("\n")
    )
    .into())
}
