//! What podwatch can be told on the command line, as one group of flags.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, builder::PossibleValue};
use windlass::{
    cache::Cacheable,
    prelude::{ObjectKey, Watch},
};

use crate::{
    filter::Filter,
    kinds::KindRef,
    notice::What,
    sinks::{SINK_HELP, SinkSpec},
};

/// What to do, in a few lines that can be tried.
pub const EXAMPLES: &str = "\
Examples:
  podwatch                                           a line for each pod in `default` that comes, changes or goes
  podwatch --namespace shop --diff                   what changes of the pods in `shop`
  podwatch --kind deployments.apps --kind nodes      two kinds, in all namespaces
  podwatch --kind foos.v1alpha1.samplecontroller.k8s.io
                                                     a kind of one's own; it may be installed later
  podwatch --kind events.v1 --filter \"object.type == 'Warning'\"
  podwatch --kind deployments --filter \"changes.exists(c, c.path == 'spec.replicas')\" --diff
  podwatch --kind secrets --events added,deleted --sink stdout:json --sink webhook:https://example.com/hook \\
           --state podwatch.state                    nothing is missed while it is away

Values of Secrets are never told, whatever is asked for.";

/// What podwatch can be told. Flattens into a program's own arguments.
#[derive(Args, Clone, Debug, Default)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// Tells of this kind, by any name that kubectl knows, as in `pods`, `deploy` or `foos.samplecontroller.k8s.io`; may be
    /// given more than once [default: pods in the namespace `default`]
    #[arg(
        long = "kind",
        value_name = "KIND",
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub kinds: Vec<KindRef>,

    /// Which objects, and how many at a time.
    #[command(flatten)]
    pub scope: Scope,

    /// Tells only that of which this expression in CEL is true; it can use `object`, `old`, `what`, `changes`, `kind`, `key`
    /// and `name`
    #[arg(long, value_name = "CEL", help_heading = HEADING)]
    pub filter: Option<Filter>,

    /// Tells only of these [default: all]
    #[arg(
        long,
        value_name = "EVENT",
        value_enum,
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub events: Vec<What>,

    /// Shows what changed, as `path: old → new`
    #[arg(long, help_heading = HEADING)]
    pub diff: bool,

    /// Also tells changes of heartbeats and versions alone
    #[arg(long, help_heading = HEADING)]
    pub heartbeats: bool,

    /// Tells this sink; may be given more than once [default: stdout]
    #[arg(
        long = "sink",
        value_name = "SINK",
        long_help = format!("Tells this sink; may be given more than once [default: stdout]\n\n{SINK_HELP}"),
        help_heading = HEADING
    )]
    pub sinks: Vec<SinkSpec>,

    /// Keeps in this file (mode 0600) what each sink was told, so that nothing is missed while it is away, and little told twice;
    /// one file for each cluster
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub state: Option<PathBuf>,
}

const HEADING: &str = "What to tell";

impl Arguments {
    /// Whether nothing was asked for but pods: then it is `syncToStdout`.
    pub(crate) fn is_plain(&self) -> bool {
        let Self {
            kinds,
            scope: _,
            filter,
            events,
            diff,
            heartbeats,
            sinks,
            state,
        } = self;
        kinds.is_empty()
            && filter.is_none()
            && events.is_empty()
            && !diff
            && !heartbeats
            && sinks.is_empty()
            && state.is_none()
    }
}

impl clap::ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Which objects, and how many at a time.
#[derive(Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct Scope {
    /// The namespaces to look at; empty: wherever the manager looks. The shared flag `--namespace` sets it.
    #[arg(skip)]
    pub namespaces: Vec<String>,

    /// Only objects whose labels match, as in `app=web,tier!=cache`; the server selects
    #[arg(long = "selector", value_name = "LABELS", help_heading = HEADING)]
    pub labels: Option<String>,

    /// Only objects whose fields match, as in `spec.nodeName=node-1`; the server selects
    #[arg(long = "field-selector", value_name = "FIELDS", help_heading = HEADING)]
    pub fields: Option<String>,

    /// An object that was there before, as `NAMESPACE/NAME`: if it is gone, that is told; may be given more than once
    #[arg(long = "known", value_name = "KEY", value_delimiter = ',', value_parser = key, help_heading = HEADING)]
    pub known: Vec<ObjectKey>,

    /// How many objects are worked on at the same time, of each kind
    #[arg(long, value_name = "N", default_value = "1", help_heading = HEADING)]
    pub workers: NonZeroUsize,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            labels: None,
            fields: None,
            known: Vec::new(),
            workers: NonZeroUsize::MIN,
        }
    }
}

impl Scope {
    /// Of a kind, only what is asked for.
    pub(crate) fn narrow<K: Cacheable>(&self, mut watch: Watch<K>) -> Watch<K> {
        if !self.namespaces.is_empty() {
            watch = watch.namespaces(&self.namespaces);
        }
        if let Some(labels) = &self.labels {
            watch = watch.labels(labels);
        }
        if let Some(fields) = &self.fields {
            watch = watch.fields(fields);
        }
        watch
    }
}

/// Reads `NAMESPACE/NAME`, or the `NAME` of what lives outside namespaces.
fn key(text: &str) -> Result<ObjectKey, String> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ObjectKey::namespaced(namespace, name))
        }
        None if is_name(text) => Ok(ObjectKey::cluster(text)),
        _ => Err("an object is `NAMESPACE/NAME`, or `NAME` outside namespaces".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(flags: &[&str]) -> Result<Arguments, String> {
        let all = ["podwatch"].iter().chain(flags);
        let program = Program::try_parse_from(all);
        program
            .map(|program| program.arguments)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn selecting_pods_is_still_the_plain_form_and_anything_else_is_not() {
        for flags in [
            &[][..],
            &["--selector", "app=web", "--field-selector", "spec.nodeName=n"],
            &["--workers", "4", "--known", "default/mypod"],
        ] {
            assert!(parsed(flags).expect("it parses").is_plain(), "{flags:?}");
        }
        for flags in [
            &["--kind=pods"][..],
            &["--diff"],
            &["--filter=true"],
            &["--events=added"],
            &["--sink=stdout"],
            &["--state=f"],
            &["--heartbeats"],
        ] {
            assert!(!parsed(flags).expect("it parses").is_plain(), "{flags:?}");
        }
    }

    #[test]
    fn flags_may_be_repeated_or_separated_by_commas() {
        let arguments = parsed(&[
            "--kind=pods,deploy",
            "--kind=nodes",
            "--events=added,deleted",
            "--known=a/b,node-1",
        ])
        .expect("it parses");
        let kinds: Vec<_> = arguments.kinds.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["pods", "deploy", "nodes"]);
        assert_eq!(arguments.events, [What::Added, What::Deleted]);
        let known = [ObjectKey::namespaced("a", "b"), ObjectKey::cluster("node-1")];
        assert_eq!(arguments.scope.known, known);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_flag_and_the_fix() {
        for (flag, said) in [
            ("--kind=", "`` cannot be a kind: write it as in `pods`"),
            ("--kind=pods/status", "cannot be a kind"),
            (
                "--filter=objekt == 1",
                "`objekt` is not known here: there are `object`",
            ),
            ("--filter=1 +", "--filter <CEL>"),
            (
                "--events=gone",
                "[possible values: synced, added, updated, deleted]",
            ),
            ("--workers=0", "--workers <N>"),
            ("--known=a/b/c", "`NAMESPACE/NAME`"),
            ("--known=/b", "`NAMESPACE/NAME`"),
            ("--sink=carrier-pigeon", "no sink is called `carrier-pigeon`"),
        ] {
            let error = parsed(&[flag]).expect_err(flag);
            assert!(error.contains(said), "{flag}: {error}");
        }
    }
}
