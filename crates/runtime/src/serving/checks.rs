//! Named health checks, with the response format of kube-apiserver and controller-runtime.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    fmt::Write as _,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::response::{TextBody, not_found, text};

/// Health or readiness checks of a process. Without checks the endpoint always succeeds, with a check named `ping`.
///
/// ```
/// use windlass_runtime::serving::Checks;
///
/// let checks = Checks::new()
///     .add("ping", || async { Ok(()) })
///     .add("disk", || async {
///         std::fs::metadata("/data")?;
///         Ok(())
///     });
/// ```
#[must_use = "checks do nothing until they are served"]
pub struct Checks {
    by_name: BTreeMap<String, Check>,
    timeout: Duration,
    /// The checks that failed last time. Probes come every few seconds, but a failure is logged once.
    failing: Mutex<BTreeSet<String>>,
}

type BoxError = Box<dyn StdError + Send + Sync>;
type Check = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

impl Checks {
    /// Creates an empty set of checks.
    pub fn new() -> Self {
        Self {
            by_name: BTreeMap::new(),
            timeout: Duration::from_secs(1),
            failing: Mutex::default(),
        }
    }

    /// Adds a check, or replaces the one of the same name. All checks run concurrently at each request. A check fails by an
    /// error, a panic, or the timeout.
    pub fn add<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.by_name
            .insert(name.into(), Box::new(move || Box::pin(check())));
        self
    }

    /// Timeout of one check. Default: 1 s, the default timeout of kubelet probes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Responds to a request for `endpoint` (`healthz`) or for one check below it.
    pub(super) async fn respond(&self, endpoint: &str, check: &str, query: &str) -> Response<TextBody> {
        match check {
            "" => self.respond_all(endpoint, query).await,
            "ping" if self.by_name.is_empty() => text(StatusCode::OK, "ok"),
            name => match self.by_name.get(name) {
                Some(check) => match self.run(check).await {
                    Ok(()) => text(StatusCode::OK, "ok"),
                    Err(error) => text(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        format!("internal server error: {error}\n"),
                    ),
                },
                None => not_found(),
            },
        }
    }

    async fn respond_all(&self, endpoint: &str, query: &str) -> Response<TextBody> {
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let verbose = query.iter().any(|(name, _)| name == "verbose");
        let excluded: BTreeSet<_> = query
            .iter()
            .filter_map(|(name, value)| (name == "exclude").then_some(&**value))
            .collect();
        let results = join_all(self.by_name.iter().map(async |(name, check)| {
            let result = if excluded.contains(&**name) {
                None
            } else {
                Some(self.run(check).await)
            };
            (&**name, result)
        }))
        .await;

        let mut lines = String::new();
        let mut failed = false;
        for (name, result) in &results {
            // As in kube-apiserver, the error is only in the log and in the check's own response.
            let _ = match result {
                None => writeln!(lines, "[+]{name} excluded: ok"),
                Some(Ok(())) => {
                    self.failing.lock().remove(*name);
                    writeln!(lines, "[+]{name} ok")
                }
                Some(Err(error)) => {
                    self.log_failure(endpoint, name, &error.to_string());
                    failed = true;
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        if self.by_name.is_empty() {
            lines.push_str("[+]ping ok\n");
        }
        let unknown: Vec<_> = excluded
            .iter()
            .filter(|name| !self.by_name.contains_key(**name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !unknown.is_empty() {
            let _ = writeln!(
                lines,
                "warn: some health checks cannot be excluded: no matches for {}",
                unknown.join(",")
            );
        }
        match (failed, verbose) {
            (true, _) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{lines}{endpoint} check failed\n"),
            ),
            (false, true) => text(StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
            (false, false) => text(StatusCode::OK, "ok"),
        }
    }

    /// Logs a check when it starts to fail.
    fn log_failure(&self, endpoint: &str, check: &str, error: &str) {
        if self.failing.lock().insert(check.to_owned()) {
            tracing::warn!(endpoint, check, error, "health check failed");
        } else {
            tracing::debug!(endpoint, check, error, "health check failed");
        }
    }

    async fn run(&self, check: &Check) -> Result<(), BoxError> {
        // Calls the check inside the future, because it may panic before it returns its own.
        let checked = AssertUnwindSafe(async { check().await }).catch_unwind();
        match timeout(self.timeout, checked).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the check panicked".into()),
            Err(_) => Err(format!("the check took longer than {:?}", self.timeout).into()),
        }
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self::new()
    }
}
