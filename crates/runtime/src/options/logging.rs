//! The process's log: lines of text for people, or of JSON for machines.

/// How to log. Lines go to standard error.
///
/// `kube`'s client is heard from `error` on only: at `warn` it prints whole answers that it cannot read, and those may be
/// Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct Logging {
    /// Lines of text for people, or of JSON for machines
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

    /// From which level on: error, warn, info, debug or trace; by part, as in info,windlass=debug [default: `RUST_LOG`, or info]
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

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum LogFormat {
    /// For people; in colour on a terminal.
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
    use std::io::{IsTerminal, stderr};

    use tracing_subscriber::{EnvFilter, Layer, Registry, filter::ParseError, layer::SubscriberExt};

    use super::{LogFormat, Logging};
    use crate::options::json::JsonLines;

    /// Why nothing is logged.
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum LoggingError {
        /// The level cannot be read.
        #[error(
            "cannot read the log level `{level}` of {origin}: {source}; write it as in `info,windlass=debug`"
        )]
        Level {
            /// What was given.
            level: String,
            /// Where.
            origin: &'static str,
            /// What is wrong with it.
            source: ParseError,
        },
        /// A process has one log.
        #[error("this process has a log already: set it up once")]
        AlreadySet,
    }

    impl Logging {
        /// Sends the log of the whole process to standard error. Once per process, before anything is logged.
        pub fn init(&self) -> Result<(), LoggingError> {
            let filter = self.filter()?;
            let layer: Box<dyn Layer<Registry> + Send + Sync> = match self.format {
                LogFormat::Text => Box::new(
                    tracing_subscriber::fmt::layer()
                        .with_ansi(stderr().is_terminal())
                        .with_writer(stderr),
                ),
                LogFormat::Json => Box::new(JsonLines::new(stderr)),
            };
            let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
            tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::AlreadySet)
        }

        /// What [`init`](Self::init) lets through, for a subscriber with layers of its own: the level, else `RUST_LOG`,
        /// else `info`.
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
                    Ok(filter.add_directive("kube_client::client=error".parse().expect("a directive")))
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
    fn the_flag_goes_before_the_variable_and_the_variable_before_the_default() {
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
        let with = |level: &str| Ok(format!("kube_client::client=error,{level}"));
        assert_eq!(filter(Some("debug"), Some("warn")), with("debug"));
        assert_eq!(filter(None, Some("warn")), with("warn"));
        assert_eq!(filter(None, Some("")), with("info"));
        assert_eq!(filter(None, None), with("info"));
        let error = filter(Some("a=loud"), None).expect_err("no such level");
        assert!(
            error.starts_with("cannot read the log level `a=loud` of --log-level: "),
            "{error}"
        );
    }
}
