//! The process's limit on open files, of which each connection is one.

use crate::limits::Limits;

/// Files that are not connections: the process's own, and those that it opens while all connections are used.
const OTHER_FILES: usize = 128;

/// Raises the process's limit on open files as far as it may, as Go programs do, and lowers the limits on connections to what
/// remains: without a free file not even the administrator could connect.
pub(super) fn fit_connections(limits: Limits) -> Limits {
    match raise_limit() {
        Some(files) => fit(limits, files),
        None => limits,
    }
}

fn fit(mut limits: Limits, files: usize) -> Limits {
    let available = files.saturating_sub(OTHER_FILES).max(2);
    let wanted = limits.connections.saturating_add(limits.reserved_connections);
    if wanted > available {
        limits.reserved_connections = limits.reserved_connections.min(available / 4).max(1);
        limits.connections = available - limits.reserved_connections;
        tracing::warn!(
            files,
            connections = limits.connections,
            reserved = limits.reserved_connections,
            "fewer connections than configured, because the process may not open so many files (`ulimit -n`)"
        );
    }
    limits
}

/// Sets the soft limit to the hard one. Returns it; none if there is none.
#[cfg(unix)]
fn raise_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("cannot raise the limit on open files");
    }
    let current = getrlimit(Resource::Nofile).current?;
    Some(usize::try_from(current).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn raise_limit() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_use_up_the_open_files() {
        let default = Limits::default();
        assert_eq!(fit(default.clone(), 1_000_000), default);
        for files in [0, 1, 256, 1_024, 4_500] {
            let limits = fit(default.clone(), files);
            let (ordinary, reserved) = (limits.connections, limits.reserved_connections);
            assert!(ordinary >= 1 && reserved >= 1, "{files}: {ordinary} + {reserved}");
            assert!(
                files < 256 || ordinary + reserved + OTHER_FILES <= files,
                "{files}: {ordinary} + {reserved}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn soft_limit_is_raised_to_the_hard_one() {
        let files = raise_limit();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(files, limit.current.and_then(|files| usize::try_from(files).ok()));
    }
}
