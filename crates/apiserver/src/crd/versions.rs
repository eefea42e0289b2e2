//! Order of version names: `v2` before `v1`, `v1` before `v1beta2`, `v1beta2` before `v1alpha1`, and other names last.

use std::cmp::Ordering;

/// Compares two versions of a group: the preferred one is first.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    match (Rank::parse(a), Rank::parse(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability first, then version numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    stage: Stage,
    major: u64,
    minor: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

impl Rank {
    /// Parses `v1`, `v1beta2`. `None` for names of another form.
    fn parse(version: &str) -> Option<Self> {
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
            text.parse().ok().filter(|_| plain)
        };
        let rest = version.strip_prefix('v')?;
        let (major, stage, minor) = if let Some((major, minor)) = rest.split_once("alpha") {
            (major, Stage::Alpha, number(minor)?)
        } else if let Some((major, minor)) = rest.split_once("beta") {
            (major, Stage::Beta, number(minor)?)
        } else {
            (rest, Stage::Stable, 0)
        };
        Some(Self {
            stage,
            major: number(major)?,
            minor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = [
            "foo10",
            "v1alpha1",
            "v11beta2",
            "v1",
            "v10",
            "v3beta1",
            "foo1",
            "v2",
            "v12alpha1",
            "v10beta3",
            "v11alpha2",
        ];
        versions.sort_by(|a, b| compare(a, b));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
