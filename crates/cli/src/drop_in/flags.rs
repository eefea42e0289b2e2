//! Command lines as Go's programs take them.
//!
//! `--name=value`, `--name value`, `-name value`, `--switch`, `--switch=false`; repeated, with `_` for `-`, and ended by
//! `--`. A flag that nobody knows is no mistake: whoever starts the program may know more flags than it has, so those are
//! handed back for a warning.

use std::collections::BTreeMap;

/// A flag that a program takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// What it does, for `--help`.
    pub(super) about: &'static str,
}

impl Flag {
    pub(super) const fn value(name: &'static str, about: &'static str) -> Self {
        let form = Form::Value;
        Self { name, form, about }
    }

    pub(super) const fn switch(name: &'static str, about: &'static str) -> Self {
        let form = Form::Switch;
        Self { name, form, about }
    }
}

/// What stands after a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A value, in the same word or in the next one.
    Value,
    /// Nothing, or a value in the same word.
    Switch,
}

/// What a command line says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    given: BTreeMap<&'static str, Vec<String>>,
    /// The names of flags that nobody knows, and the words that are no flags, in the order in which they came.
    pub(super) unknown: Vec<String>,
}

/// A command line that cannot be meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mistake {
    #[error("flag needs an argument: --{0}")]
    NoValue(&'static str),
    #[error("invalid argument {value:?} for --{name}: {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl Flags {
    /// Reads the words after the program's name.
    pub(super) fn read(known: &[Flag], words: impl IntoIterator<Item = String>) -> Result<Self, Mistake> {
        let mut flags = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                flags.unknown.extend(words);
                break;
            }
            let Some(stated) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                flags.unknown.push(word);
                continue;
            };
            let (name, value) = match stated.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (stated, None),
            };
            let name = name.replace('_', "-");
            let Some(flag) = known.iter().find(|flag| flag.name == name) else {
                flags.unknown.push(format!("--{name}"));
                if value.is_none() {
                    // What follows an unknown flag is its value unless it looks like the next flag.
                    words.next_if(|next| !next.starts_with('-'));
                }
                continue;
            };
            let value = match (value, flag.form) {
                (Some(value), _) => value,
                (None, Form::Switch) => "true".to_owned(),
                (None, Form::Value) => words.next().ok_or(Mistake::NoValue(flag.name))?,
            };
            flags.given.entry(flag.name).or_default().push(value);
        }
        Ok(flags)
    }

    /// The value of a flag that counts once: of several, the last. Empty is the same as not given.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let last = self.given.get(name)?.last()?;
        (!last.is_empty()).then_some(&**last)
    }

    /// All values of a flag that is a list: given several times, with commas, or both.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.given.get(name).map_or(&[][..], Vec::as_slice);
        values
            .iter()
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
    }

    /// The last value of a flag, read as what it should be.
    pub(super) fn parsed<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, Mistake> {
        let Some(value) = self.last(name) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| Mistake::Value {
            name,
            value: value.to_owned(),
            expected,
        })
    }

    /// Whether a switch is on; `None` if nothing is said about it. As Go reads it.
    pub(super) fn switch(&self, name: &'static str) -> Result<Option<bool>, Mistake> {
        match self.last(name) {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(value) => Err(Mistake::Value {
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

    fn read(line: &str) -> Result<Flags, Mistake> {
        Flags::read(KNOWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_value_is_taken_in_every_way_in_which_go_takes_it() {
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
            assert_eq!(read(line).unwrap().last("secure-port"), Some("6443"), "{line}");
        }
        let empty = read("--secure-port=").unwrap();
        assert_eq!(empty.last("secure-port"), None);
        let odd = read("--secure-port --allow-privileged").unwrap();
        assert_eq!(
            odd.last("secure-port"),
            Some("--allow-privileged"),
            "the next word is the value, whatever it looks like"
        );
    }

    #[test]
    fn a_list_is_made_of_commas_and_of_repetition() {
        let flags = read("--authorization-mode=Node,RBAC --authorization-mode Webhook,").unwrap();
        let modes: Vec<_> = flags.list("authorization-mode").collect();
        assert_eq!(modes, ["Node", "RBAC", "Webhook"]);
        assert_eq!(flags.list("secure-port").count(), 0);
    }

    #[test]
    fn a_switch_needs_no_value_and_takes_none_from_the_next_word() {
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
    fn what_nobody_knows_is_named_and_harms_nothing() {
        let flags = read("--feature-gates=A=true --vmodule x=1 word -- --secure-port 1").unwrap();
        assert_eq!(
            flags.unknown,
            ["--feature-gates", "--vmodule", "word", "--secure-port", "1"]
        );
        assert_eq!(flags.last("secure-port"), None, "after `--` nothing is a flag");
    }

    #[test]
    fn a_missing_or_wrong_value_names_the_flag() {
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
        fn whatever_is_given_is_read_back_in_order(values in prop::collection::vec("[^,\\pC]{0,8}", 0..6), joined: bool) {
            let words = values.iter().flat_map(|value| {
                if joined {
                    vec![format!("--authorization-mode={value}")]
                } else {
                    vec!["--authorization-mode".to_owned(), value.clone()]
                }
            });
            let flags = Flags::read(KNOWN, words).unwrap();
            let given = values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
            prop_assert!(flags.list("authorization-mode").eq(given));
            prop_assert!(flags.unknown.is_empty());
        }

        #[test]
        fn no_command_line_is_too_strange(words in prop::collection::vec("(--?[a-z=-]{0,20}|\\PC{0,6})", 0..8)) {
            let _ = Flags::read(KNOWN, words);
        }
    }
}
