//! Named checks, and the texts in which kube-apiserver and controller-runtime tell their results.

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
use tokio::time::timeout;

use super::answer::{Text, not_found, text};

/// What must hold for a process to be healthy, or ready. With none, it is as soon as it answers: a check named `ping`
/// stands in.
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
    checks: BTreeMap<String, Check>,
    timeout: Duration,
}

type BoxError = Box<dyn StdError + Send + Sync>;
type Check = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

impl Checks {
    /// None yet.
    pub fn new() -> Self {
        Self {
            checks: BTreeMap::new(),
            timeout: Duration::from_secs(1),
        }
    }

    /// Adds a check, which is asked at each request, all at the same time. It fails with an error, by a panic, or by
    /// taking longer than the timeout. One of the same name is replaced.
    pub fn add<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.checks
            .insert(name.into(), Box::new(move || Box::pin(check())));
        self
    }

    /// How long one check may take. Default: 1 s, as long as a kubelet waits by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Answers a request for `endpoint` (`healthz`) or for one check below it.
    pub(super) async fn answer(&self, endpoint: &str, check: &str, query: &str) -> Response<Text> {
        match check {
            "" => self.all(endpoint, query).await,
            "ping" if self.checks.is_empty() => text(StatusCode::OK, "ok"),
            name => match self.checks.get(name) {
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

    async fn all(&self, endpoint: &str, query: &str) -> Response<Text> {
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let verbose = query.iter().any(|(name, _)| name == "verbose");
        let excluded: BTreeSet<_> = query
            .iter()
            .filter_map(|(name, value)| (name == "exclude").then_some(&**value))
            .collect();
        let results = join_all(self.checks.iter().map(async |(name, check)| {
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
            // Anybody may ask here, so an error stays in the log and in the check's own answer.
            let _ = match result {
                None => writeln!(lines, "[+]{name} excluded: ok"),
                Some(Ok(())) => writeln!(lines, "[+]{name} ok"),
                Some(Err(error)) => {
                    tracing::warn!(endpoint, check = name, %error, "a health check failed");
                    failed = true;
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        if self.checks.is_empty() {
            lines.push_str("[+]ping ok\n");
        }
        let unknown: Vec<_> = excluded
            .iter()
            .filter(|name| !self.checks.contains_key(**name))
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

    async fn run(&self, check: &Check) -> Result<(), BoxError> {
        // Not called before it is polled: a check may also panic while it makes its future.
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
