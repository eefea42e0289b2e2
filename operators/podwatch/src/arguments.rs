//! Podwatch's command-line flags, as one group.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, builder::PossibleValue};
use windlass::{
    cache::Cacheable,
    prelude::{ObjectKey, Watch},
};

use crate::{
    filter::Filter,
    kinds::KindRef,
    notice::EventType,
    sinks::{SINK_HELP, SinkSpec},
};

/// Example commands, shown at the end of `--help`.
pub const EXAMPLES: &str = "\
Examples:
  podwatch                                           a line for each pod added, changed or deleted in `default`
  podwatch --namespace shop --diff                   the changed fields of the pods in `shop`
  podwatch --kind deployments.apps --kind nodes      two kinds, in all namespaces
  podwatch --kind foos.v1alpha1.samplecontroller.k8s.io
                                                     a custom resource; its CRD may be installed later
  podwatch --kind events.v1 --filter \"object.type == 'Warning'\"
  podwatch --kind deployments --filter \"changes.exists(c, c.path == 'spec.replicas')\" --diff
  podwatch --kind secrets --events added,deleted --sink stdout:json --sink webhook:https://example.com/hook \\
           --state podwatch.state                    misses nothing across restarts

Values of Secrets are never reported.";

/// Podwatch's flags. Flatten them into a program's own arguments.
#[derive(Args, Clone, Debug, Default)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// Kind to watch, by any name that kubectl accepts, as in `pods`, `deploy` or `foos.samplecontroller.k8s.io`; may be
    /// repeated [default: pods in the namespace `default`]
    #[arg(
        long = "kind",
        value_name = "KIND",
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub kinds: Vec<KindRef>,

    /// Which objects to watch, and with how many workers.
    #[command(flatten)]
    pub scope: Scope,

    /// Reports only events for which this CEL expression is true; its variables are `object`, `old`, `event`, `changes`, `kind`,
    /// `key` and `name`
    #[arg(long, value_name = "CEL", help_heading = HEADING)]
    pub filter: Option<Filter>,

    /// Event types to report [default: all]
    #[arg(
        long,
        value_name = "EVENT",
        value_enum,
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub events: Vec<EventType>,

    /// Shows the changed fields, as `path: old → new`
    #[arg(long, help_heading = HEADING)]
    pub diff: bool,

    /// Also reports updates that change only heartbeats and versions
    #[arg(long, help_heading = HEADING)]
    pub heartbeats: bool,

    /// Reports every observed change, instead of the latest state when changes of an object come faster than they are
    /// reported; waiting changes are limited, and those beyond are coalesced and counted
    #[arg(long, help_heading = HEADING)]
    pub every_change: bool,

    /// Sink to report to; may be repeated [default: stdout]
    #[arg(
        long = "sink",
        value_name = "SINK",
        long_help = format!("Sink to report to; may be repeated [default: stdout]\n\n{SINK_HELP}"),
        help_heading = HEADING
    )]
    pub sinks: Vec<SinkSpec>,

    /// File (mode 0600) that records what each sink received, so that a restart misses nothing and repeats little; use one
    /// file per cluster
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub state: Option<PathBuf>,
}

const HEADING: &str = "What to report";

impl Arguments {
    /// Whether the flags ask for `syncToStdout`: nothing but a selection of pods.
    pub(crate) fn is_sync_to_stdout(&self) -> bool {
        let Self {
            kinds,
            scope: _,
            filter,
            events,
            diff,
            heartbeats,
            every_change,
            sinks,
            state,
        } = self;
        kinds.is_empty()
            && filter.is_none()
            && events.is_empty()
            && !diff
            && !heartbeats
            && !every_change
            && sinks.is_empty()
            && state.is_none()
    }
}

impl clap::ValueEnum for EventType {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Which objects to watch, and with how many workers.
#[derive(Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct Scope {
    /// The namespaces to watch. Default: empty, the manager's namespaces. Set by the shared flag `--namespace`.
    #[arg(skip)]
    pub namespaces: Vec<String>,

    /// Label selector, as in `app=web,tier!=cache`; evaluated by the server
    #[arg(long = "selector", value_name = "LABELS", help_heading = HEADING)]
    pub labels: Option<String>,

    /// Field selector, as in `spec.nodeName=node-1`; evaluated by the server
    #[arg(long = "field-selector", value_name = "FIELDS", help_heading = HEADING)]
    pub fields: Option<String>,

    /// Object that existed before, as `NAMESPACE/NAME`: reported as deleted if it no longer exists; may be repeated
    #[arg(long = "known", value_name = "KEY", value_delimiter = ',', value_parser = parse_key, help_heading = HEADING)]
    pub known: Vec<ObjectKey>,

    /// Number of objects of each kind to process concurrently
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
    /// Restricts a watch to this scope.
    pub(crate) fn apply_to<K: Cacheable>(&self, mut watch: Watch<K>) -> Watch<K> {
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

/// Parses `NAMESPACE/NAME`, or `NAME` for a cluster-scoped object.
fn parse_key(text: &str) -> Result<ObjectKey, String> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ObjectKey::namespaced(namespace, name))
        }
        None if is_name(text) => Ok(ObjectKey::cluster_scoped(text)),
        _ => Err("expected `NAMESPACE/NAME`, or `NAME` for a cluster-scoped object".to_owned()),
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
    fn only_pod_selection_flags_keep_sync_to_stdout() {
        for flags in [
            &[][..],
            &["--selector", "app=web", "--field-selector", "spec.nodeName=n"],
            &["--workers", "4", "--known", "default/mypod"],
        ] {
            assert!(parsed(flags).expect("it parses").is_sync_to_stdout(), "{flags:?}");
        }
        for flags in [
            &["--kind=pods"][..],
            &["--diff"],
            &["--filter=true"],
            &["--events=added"],
            &["--sink=stdout"],
            &["--state=f"],
            &["--heartbeats"],
            &["--every-change"],
        ] {
            assert!(
                !parsed(flags).expect("it parses").is_sync_to_stdout(),
                "{flags:?}"
            );
        }
    }

    #[test]
    fn list_flags_accept_repetition_and_commas() {
        let arguments = parsed(&[
            "--kind=pods,deploy",
            "--kind=nodes",
            "--events=added,deleted",
            "--known=a/b,node-1",
        ])
        .expect("it parses");
        let kinds: Vec<_> = arguments.kinds.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["pods", "deploy", "nodes"]);
        assert_eq!(arguments.events, [EventType::Added, EventType::Deleted]);
        let known = [
            ObjectKey::namespaced("a", "b"),
            ObjectKey::cluster_scoped("node-1"),
        ];
        assert_eq!(arguments.scope.known, known);
    }

    #[test]
    fn invalid_flag_is_rejected_with_flag_and_fix() {
        for (flag, expected) in [
            ("--kind=", "invalid kind ``: write it as in `pods`"),
            ("--kind=pods/status", "invalid kind"),
            (
                "--filter=objekt == 1",
                "unknown variable `objekt`: use one of `object`",
            ),
            ("--filter=1 +", "--filter <CEL>"),
            (
                "--events=gone",
                "[possible values: synced, added, updated, deleted]",
            ),
            ("--workers=0", "--workers <N>"),
            ("--known=a/b/c", "`NAMESPACE/NAME`"),
            ("--known=/b", "`NAMESPACE/NAME`"),
            ("--sink=carrier-pigeon", "unknown sink `carrier-pigeon`"),
        ] {
            let error = parsed(&[flag]).expect_err(flag);
            assert!(error.contains(expected), "{flag}: {error}");
        }
    }
}
