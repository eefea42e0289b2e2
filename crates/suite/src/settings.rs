//! The settings of a run from the environment: backends, and whether a real control plane is required.

use std::{fmt, time::Duration};

use windlass_cluster::{Cluster, Embedded, Existing, Real};

const BACKENDS: &str = "WINDLASS_BACKENDS";
const REQUIRE_REAL: &str = "WINDLASS_REQUIRE_REAL";

/// How long a control plane may take to start: suites start several at once, on machines that do other work too.
const START_LIMIT: Duration = Duration::from_mins(5);

/// A backend to run cases on, whether or not it is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The API server in this process.
    Embedded,
    /// kube-apiserver and etcd, started by this process.
    Real,
    /// The cluster of the current kubeconfig. Never a default, since suites create and delete objects.
    Existing,
}

impl Target {
    const ALL: [Self; 3] = [Self::Embedded, Self::Real, Self::Existing];
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
            Self::Existing => "existing",
        })
    }
}

/// The settings of a run.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) targets: Vec<Target>,
    /// Whether a missing control plane is a failure.
    pub(crate) require_real: bool,
    pub(crate) embedded: Embedded,
    pub(crate) real: Real,
    pub(crate) existing: Existing,
}

/// Whether cases can run on a target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Yes. If the cluster does not start, the cases fail.
    Ready,
    /// No: they are ignored for this reason.
    Missing(String),
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, String> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Ok(Self {
            targets: parse_targets(&variable(BACKENDS))?,
            require_real: parse_switch(REQUIRE_REAL, &variable(REQUIRE_REAL))?,
            embedded: Cluster::embedded(),
            real: Cluster::real().ready_within(START_LIMIT),
            existing: Cluster::existing(),
        })
    }

    pub(crate) fn availability(&self, target: Target) -> Availability {
        match target {
            // Embedded needs nothing. Existing was requested explicitly, so an unreachable cluster is a failure.
            Target::Embedded | Target::Existing => Availability::Ready,
            Target::Real if self.require_real => Availability::Ready,
            Target::Real => match self.real.available() {
                Ok(()) => Availability::Ready,
                Err(error) => Availability::Missing(error.to_string()),
            },
        }
    }
}

fn parse_targets(text: &str) -> Result<Vec<Target>, String> {
    let names: Vec<_> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return Ok(vec![Target::Embedded, Target::Real]);
    }
    let mut targets = Vec::new();
    for name in names {
        let Some(target) = Target::ALL.into_iter().find(|target| target.to_string() == name) else {
            return Err(format!(
                "invalid {BACKENDS}: unknown backend `{name}`; use embedded, real or existing, separated by commas"
            ));
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// Rejects anything but `1`, `0` and empty, so that a mistyped value does not turn a requirement off.
fn parse_switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "" | "0" => Ok(false),
        other => Err(format!("invalid {name} `{other}`: set it to 1, or unset it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_parse_in_any_order_without_duplicates() {
        use Target::{Embedded, Existing, Real};
        for (text, targets) in [
            ("", vec![Embedded, Real]),
            (" , ", vec![Embedded, Real]),
            ("real", vec![Real]),
            ("existing, embedded", vec![Existing, Embedded]),
            ("real,real", vec![Real]),
        ] {
            assert_eq!(parse_targets(text), Ok(targets), "`{text}`");
        }
    }

    #[test]
    fn unknown_backend_error_names_it() {
        assert!(parse_targets("real,kind").unwrap_err().contains("`kind`"));
    }

    #[test]
    fn mistyped_requirement_is_rejected() {
        assert_eq!(parse_switch("V", "1"), Ok(true));
        assert_eq!(parse_switch("V", ""), Ok(false));
        assert_eq!(parse_switch("V", "0"), Ok(false));
        assert!(parse_switch("V", "yes").unwrap_err().contains("V `yes`"));
    }
}
