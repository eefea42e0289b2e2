//! What an agent can be told on the command line, as one group of flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{boot::BOOT_ID, how::How, trigger::Trigger, words::Words};

/// What an agent can be told. Flattens into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The node that it is the agent of. Default: what the variable `NODE_NAME` says.
    #[arg(
        long = "node",
        value_name = "NAME",
        help = "The node that it is the agent of [default: NODE_NAME]",
        help_heading = HEADING
    )]
    pub node: Option<String>,

    /// How it reboots the machine
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Way::Logind, help_heading = HEADING)]
    pub reboot_with: Way,

    /// Reboots with this command instead; split at spaces, or a JSON list of words
    #[arg(long, value_name = "COMMAND", conflicts_with = "reboot_with", help_heading = HEADING)]
    pub reboot_command: Option<Words>,

    /// The address of the bus that logind is on [default: the system's]
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    pub dbus_address: Option<String>,

    /// Uses the bus as root too, which gives whoever takes over this process the whole host
    #[arg(long, help_heading = HEADING)]
    pub allow_root: bool,

    /// The file that tells this boot from others
    #[arg(long, value_name = "FILE", default_value = BOOT_ID, help_heading = HEADING)]
    pub boot_id_file: PathBuf,

    /// After a reboot, runs this command until it ends with 0, and says so; a policy with `after.agentCheck` waits for that
    #[arg(long, value_name = "COMMAND", help_heading = HEADING)]
    pub check_command: Option<Words>,

    /// Asks for a reboot when this file is there, unless it is older than the boot
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub trigger_file: Option<PathBuf>,

    /// Asks for a reboot when this command ends with 0; 1 says that none is needed
    #[arg(long, value_name = "COMMAND", conflicts_with = "trigger_file", help_heading = HEADING)]
    pub trigger_command: Option<Words>,

    /// How often it looks, and how long after a boot for the first time
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5m",
        value_parser = time,
        help_heading = HEADING
    )]
    pub trigger_interval: Duration,
}

const HEADING: &str = "Agent";

/// The ways to reboot that have a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Ask logind over D-Bus
    #[default]
    Logind,
    /// Run `systemctl reboot`
    Systemctl,
    /// Ask the simulated machine of a Windlass cluster; refuses real nodes
    Simulated,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            node: None,
            reboot_with: Way::default(),
            reboot_command: None,
            dbus_address: None,
            allow_root: false,
            boot_id_file: BOOT_ID.into(),
            check_command: None,
            trigger_file: None,
            trigger_command: None,
            trigger_interval: Duration::from_mins(5),
        }
    }
}

impl Arguments {
    pub(super) fn how(&self) -> How {
        match (&self.reboot_command, self.reboot_with) {
            (Some(words), _) => How::Command(words.clone()),
            (None, Way::Systemctl) => How::Systemctl,
            (None, Way::Simulated) => How::Simulated,
            (None, Way::Logind) => How::Logind {
                bus: self.dbus_address.clone(),
            },
        }
    }

    pub(super) fn trigger(&self) -> Option<Trigger> {
        let file = || self.trigger_file.clone().map(Trigger::File);
        self.trigger_command.clone().map(Trigger::Command).or_else(file)
    }
}

/// Reads a time as Kubernetes' tools write it: `30s`, `5m`, `1h`.
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|time| *time >= Duration::from_secs(1))
        .ok_or_else(|| {
            "a time of a second or more has a number and a unit, as in `30s`, `5m` or `1h`".to_owned()
        })
}
