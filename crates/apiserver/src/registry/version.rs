//! Order of a group's versions: the most stable and newest one is preferred.

use std::cmp::Reverse;

/// Sorts versions like discovery: `v2, v1, v1beta2, v1beta1, v1alpha1`, then names of another form.
pub(super) fn sort(versions: &mut [Box<str>]) {
    versions.sort_by_cached_key(|version| match parse(version) {
        Some(rank) => (0, Reverse(rank), String::new()),
        None => (1, Reverse((0, 0, 0)), version.to_string()),
    });
}

/// Stability (3 stable, 2 beta, 1 alpha), major and minor number.
fn parse(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..end].parse().ok()?;
    let (stability, minor) = match &rest[end..] {
        "" => return Some((3, major, 0)),
        stage if stage.starts_with("beta") => (2, &stage[4..]),
        stage if stage.starts_with("alpha") => (1, &stage[5..]),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_and_newer_versions_come_first() {
        let mut versions: Vec<Box<str>> = [
            "foo", "v1alpha1", "v1", "v10", "v2", "v1beta1", "v1beta2", "v2alpha1", "v1beta", "bar",
        ]
        .map(Into::into)
        .into();
        sort(&mut versions);
        let sorted: Vec<&str> = versions.iter().map(|v| &**v).collect();
        assert_eq!(
            sorted,
            [
                "v10", "v2", "v1", "v1beta2", "v1beta1", "v2alpha1", "v1alpha1", "bar", "foo", "v1beta"
            ]
        );
    }
}
