//! Parses Go-style command lines.
//!
//! `--name=value`, `--name value`, `-name value`, `--switch`, `--switch=false`; repeatable, with `_` for `-`, and ended by `--`.
//! Unknown flags are not errors, since envtest and its users may pass flags of the real programs: they are returned for a
//! warning.

use std::collections::BTreeMap;

/// A supported flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: FlagKind,
    /// The description for `--help`.
    pub(super) about: &'static str,
}

impl Flag {
    pub(super) const fn value(name: &'static str, about: &'static str) -> Self {
        let kind = FlagKind::Value;
        Self { name, kind, about }
    }

    pub(super) const fn switch(name: &'static str, about: &'static str) -> Self {
        let kind = FlagKind::Switch;
        Self { name, kind, about }
    }
}

/// Whether a flag takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagKind {
    /// It does, in the same argument or in the next one.
    Value,
    /// Optionally, in the same argument.
    Switch,
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Unknown flags and positional arguments, in order.
    pub(super) unknown: Vec<String>,
}

/// An invalid flag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FlagError {
    #[error("flag needs an argument: --{0}")]
    MissingValue(&'static str),
    #[error("invalid argument {value:?} for --{name}: {expected}")]
    InvalidValue {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl Flags {
    /// Parses the arguments after the program's name.
    pub(super) fn parse(
        known: &[Flag],
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter().peekable();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                flags.unknown.extend(arguments);
                break;
            }
            let Some(text) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                flags.unknown.push(argument);
                continue;
            };
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            let name = name.replace('_', "-");
            let Some(flag) = known.iter().find(|flag| flag.name == name) else {
                flags.unknown.push(format!("--{name}"));
                if value.is_none() {
                    // The next argument is its value, unless it looks like a flag.
                    arguments.next_if(|next| !next.starts_with('-'));
                }
                continue;
            };
            let value = match (value, flag.kind) {
                (Some(value), _) => value,
                (None, FlagKind::Switch) => "true".to_owned(),
                (None, FlagKind::Value) => arguments.next().ok_or(FlagError::MissingValue(flag.name))?,
            };
            flags.values.entry(flag.name).or_default().push(value);
        }
        Ok(flags)
    }

    /// The last value of a flag; `None` if it is empty or not given.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let last = self.values.get(name)?.last()?;
        (!last.is_empty()).then_some(&**last)
    }

    /// All values of a list flag, which may be repeated, comma-separated, or both.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.values.get(name).map_or(&[][..], Vec::as_slice);
        values
            .iter()
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
    }

    /// The last value of a flag, parsed.
    pub(super) fn parsed<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, FlagError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| FlagError::InvalidValue {
            name,
            value: value.to_owned(),
            expected,
        })
    }

    /// The value of a switch, parsed as in Go; `None` if not given.
    pub(super) fn switch(&self, name: &'static str) -> Result<Option<bool>, FlagError> {
        match self.value(name) {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(value) => Err(FlagError::InvalidValue {
                name,
                value: value.to_owned(),
                expected: "true or false",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: &[Flag] = &[
        Flag::value("secure-port", ""),
        Flag::value("authorization-mode", ""),
        Flag::switch("allow-privileged", ""),
    ];

    fn read(line: &str) -> Result<Flags, FlagError> {
        Flags::parse(KNOWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn value_parses_in_every_go_style() {
        for line in [
            "--secure-port=6443",
            "--secure-port 6443",
            "-secure-port 6443",
            "-secure-port=6443",
            "--secure_port=6443",
            "--secure-port=1 --secure-port=6443",
            "--allow-privileged --secure-port 6443",
            "--allow-privileged=true --secure-port 6443",
            "--unheard-of --secure-port 6443",
            "--unheard-of value --secure-port 6443",
            "--unheard-of=value --secure-port 6443",
        ] {
            assert_eq!(read(line).unwrap().value("secure-port"), Some("6443"), "{line}");
        }
        let empty = read("--secure-port=").unwrap();
        assert_eq!(empty.value("secure-port"), None);
        let odd = read("--secure-port --allow-privileged").unwrap();
        assert_eq!(
            odd.value("secure-port"),
            Some("--allow-privileged"),
            "the next argument is the value, even if it looks like a flag"
        );
    }

    #[test]
    fn list_accepts_commas_and_repetition() {
        let flags = read("--authorization-mode=Node,RBAC --authorization-mode Webhook,").unwrap();
        let modes: Vec<_> = flags.list("authorization-mode").collect();
        assert_eq!(modes, ["Node", "RBAC", "Webhook"]);
        assert_eq!(flags.list("secure-port").count(), 0);
    }

    #[test]
    fn switch_does_not_take_the_next_argument() {
        let on = read("--allow-privileged RBAC").unwrap();
        assert_eq!(on.switch("allow-privileged"), Ok(Some(true)));
        assert_eq!(on.unknown, ["RBAC"]);
        let off = read("--allow-privileged=false").unwrap();
        assert_eq!(off.switch("allow-privileged"), Ok(Some(false)));
        assert_eq!(read("").unwrap().switch("allow-privileged"), Ok(None));
        let neither = read("--allow-privileged=maybe")
            .unwrap()
            .switch("allow-privileged");
        assert_eq!(
            neither.unwrap_err().to_string(),
            "invalid argument \"maybe\" for --allow-privileged: true or false"
        );
    }

    #[test]
    fn unknown_arguments_are_returned() {
        let flags = read("--feature-gates=A=true --vmodule x=1 word -- --secure-port 1").unwrap();
        assert_eq!(
            flags.unknown,
            ["--feature-gates", "--vmodule", "word", "--secure-port", "1"]
        );
        assert_eq!(flags.value("secure-port"), None, "`--` ends the flags");
    }

    #[test]
    fn missing_or_invalid_value_error_names_the_flag() {
        let missing = read("--allow-privileged --secure-port").unwrap_err();
        assert_eq!(missing.to_string(), "flag needs an argument: --secure-port");
        let wrong = read("--secure-port=https").unwrap();
        let wrong = wrong.parsed::<u16>("secure-port", "a port").unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "invalid argument \"https\" for --secure-port: a port"
        );
    }

    proptest! {
        #[test]
        fn list_values_are_returned_in_order(values in prop::collection::vec("[^,\\pC]{0,8}", 0..6), joined: bool) {
            let arguments = values.iter().flat_map(|value| {
                if joined {
                    vec![format!("--authorization-mode={value}")]
                } else {
                    vec!["--authorization-mode".to_owned(), value.clone()]
                }
            });
            let flags = Flags::parse(KNOWN, arguments).unwrap();
            let given = values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
            prop_assert!(flags.list("authorization-mode").eq(given));
            prop_assert!(flags.unknown.is_empty());
        }

        #[test]
        fn any_command_line_parses_without_panic(arguments in prop::collection::vec("(--?[a-z=-]{0,20}|\\PC{0,6})", 0..8)) {
            let _ = Flags::parse(KNOWN, arguments);
        }
    }
}
