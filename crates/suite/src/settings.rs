//! Which backends a run is for, and what is needed of them.

use std::fmt;

use windlass_cluster::{Cluster, Embedded, Existing, Real};

const BACKENDS: &str = "WINDLASS_BACKENDS";
const REQUIRE_REAL: &str = "WINDLASS_REQUIRE_REAL";

/// A backend that cases can be asked to run on, whether or not it is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The API server in this process.
    Embedded,
    /// kube-apiserver and etcd, started by us.
    Real,
    /// The cluster of the current kubeconfig. Only when named: a suite makes and deletes objects there.
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

/// Everything that the environment decides about a run.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) targets: Vec<Target>,
    /// Whether "no control plane" is a failure.
    pub(crate) require_real: bool,
    pub(crate) embedded: Embedded,
    pub(crate) real: Real,
    pub(crate) existing: Existing,
}

/// Whether cases can run on a target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// They can, or must fail trying.
    Ready,
    /// They are ignored, because of this.
    Missing(String),
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, String> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Ok(Self {
            targets: parse_targets(&variable(BACKENDS))?,
            require_real: parse_switch(REQUIRE_REAL, &variable(REQUIRE_REAL))?,
            embedded: Cluster::embedded(),
            real: Cluster::real(),
            existing: Cluster::existing(),
        })
    }

    pub(crate) fn availability(&self, target: Target) -> Availability {
        match target {
            // The one needs nothing; the other was asked for by name, so that not reaching it is a failure.
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
                "{BACKENDS} names `{name}`: it takes embedded, real and existing, separated by commas"
            ));
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// Anything but `1` and its opposites is refused: a mistyped value must not turn a requirement off.
fn parse_switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "" | "0" => Ok(false),
        other => Err(format!("{name} is `{other}`: set it to 1, or unset it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_named_in_any_order_and_once() {
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
    fn an_unknown_backend_is_refused_by_name() {
        assert!(parse_targets("real,kind").unwrap_err().contains("`kind`"));
    }

    #[test]
    fn a_mistyped_requirement_is_refused() {
        assert_eq!(parse_switch("V", "1"), Ok(true));
        assert_eq!(parse_switch("V", ""), Ok(false));
        assert_eq!(parse_switch("V", "0"), Ok(false));
        assert!(parse_switch("V", "yes").unwrap_err().contains("V is `yes`"));
    }
}
