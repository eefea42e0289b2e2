//! Logging of the process: text or JSON lines.

/// Log format and level. Logs go to standard error.
///
/// `kube`'s client logs at `error` only: at `warn` it prints whole responses that it cannot decode, which may be Secrets. Its line for
/// every failed request is off: a manager logs the state of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct Logging {
    /// Log format
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "log_format",
            long = "log-format",
            value_name = "FORMAT",
            value_enum,
            default_value_t,
            help_heading = "Logging"
        )
    )]
    pub format: LogFormat,

    /// Minimum log level: error, warn, info, debug or trace; per module as in info,windlass=debug [default: `RUST_LOG`, or info]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "log_level",
            long = "log-level",
            value_name = "LEVEL",
            help_heading = "Logging"
        )
    )]
    pub level: Option<String>,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum LogFormat {
    /// Human-readable text, coloured on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    #[cfg_attr(feature = "clap", value(help = None))]
    Text,
    /// One JSON object per line; see `JsonLines`.
    #[cfg_attr(feature = "clap", value(help = None))]
    Json,
}

#[cfg(feature = "logging")]
pub use with_subscriber::LoggingError;

#[cfg(feature = "logging")]
mod with_subscriber {
    use std::io::stderr;

    use tracing_subscriber::{EnvFilter, Layer, Registry, filter::ParseError, layer::SubscriberExt};

    use super::{LogFormat, Logging};
    use crate::options::{colour::shows_colour, json::JsonLines};

    /// Why logging could not be set up.
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum LoggingError {
        /// The level is invalid.
        #[error("invalid log level `{level}` in {origin}: {source}; write it as in `info,windlass=debug`")]
        Level {
            /// The invalid level.
            level: String,
            /// The flag or variable that set it.
            origin: &'static str,
            /// The parse error.
            source: ParseError,
        },
        /// The process has a global subscriber already.
        #[error("logging is already set up: call `init` once per process")]
        AlreadySet,
    }

    impl Logging {
        /// Sends the logs of the process to standard error. Call it once per process, before anything is logged.
        pub fn init(&self) -> Result<(), LoggingError> {
            let subscriber = tracing_subscriber::registry().with(self.layer()?);
            tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::AlreadySet)
        }

        /// Returns the layer of [`init`](Self::init), with its [filter](Self::filter), for a subscriber of your own: it is
        /// the first layer, and others, such as one that exports spans, are added to it. [`launch`](crate::launch) keeps a
        /// subscriber that is set before.
        ///
        /// ```no_run
        /// use tracing_subscriber::layer::SubscriberExt as _;
        /// use windlass_runtime::Options;
        ///
        /// fn log(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
        ///     # let spans = tracing_subscriber::layer::Identity::new();
        ///     // let spans = tracing_opentelemetry::layer().with_tracer(tracer);
        ///     let subscriber = tracing_subscriber::registry().with(options.logging.layer()?).with(spans);
        ///     tracing::subscriber::set_global_default(subscriber)?;
        ///     Ok(())
        /// }
        /// ```
        pub fn layer(&self) -> Result<Box<dyn Layer<Registry> + Send + Sync>, LoggingError> {
            let filter = self.filter()?;
            let layer: Box<dyn Layer<Registry> + Send + Sync> = match self.format {
                LogFormat::Text => Box::new(
                    tracing_subscriber::fmt::layer()
                        .with_ansi(shows_colour(&stderr()))
                        .with_writer(stderr),
                ),
                LogFormat::Json => Box::new(JsonLines::new(stderr)),
            };
            Ok(Box::new(layer.with_filter(filter)))
        }

        /// Returns the filter of [`init`](Self::init), for a custom subscriber: the level, else `RUST_LOG`, else `info`.
        pub fn filter(&self) -> Result<EnvFilter, LoggingError> {
            self.filter_with(std::env::var("RUST_LOG").ok())
        }

        pub(super) fn filter_with(&self, variable: Option<String>) -> Result<EnvFilter, LoggingError> {
            let variable = variable.filter(|level| !level.is_empty());
            let (level, origin) = match (self.level.clone(), variable) {
                (Some(level), _) => (level, "--log-level"),
                (None, Some(level)) => (level, "RUST_LOG"),
                (None, None) => ("info".to_owned(), "the default"),
            };
            match EnvFilter::builder().parse(&level) {
                Ok(filter) => {
                    let of_client = ["kube_client::client=error", "kube_client::client::builder=off"]
                        .map(|directive| directive.parse().expect("valid directive"));
                    Ok(of_client.into_iter().fold(filter, EnvFilter::add_directive))
                }
                Err(source) => Err(LoggingError::Level {
                    level,
                    origin,
                    source,
                }),
            }
        }
    }
}

#[cfg(all(test, feature = "logging"))]
mod tests {
    use super::*;

    #[test]
    fn log_level_comes_from_the_flag_then_the_variable_then_the_default() {
        let filter = |level: Option<&str>, variable: Option<&str>| {
            let level = level.map(str::to_owned);
            let logging = Logging {
                level,
                ..Logging::default()
            };
            logging
                .filter_with(variable.map(str::to_owned))
                .map(|filter| filter.to_string())
                .map_err(|error| error.to_string())
        };
        let with = |level: &str| {
            Ok(format!(
                "kube_client::client::builder=off,kube_client::client=error,{level}"
            ))
        };
        assert_eq!(filter(Some("debug"), Some("warn")), with("debug"));
        assert_eq!(filter(None, Some("warn")), with("warn"));
        assert_eq!(filter(None, Some("")), with("info"));
        assert_eq!(filter(None, None), with("info"));
        let error = filter(Some("a=loud"), None).expect_err("invalid level");
        assert!(
            error.starts_with("invalid log level `a=loud` in --log-level: "),
            "{error}"
        );
    }
}
