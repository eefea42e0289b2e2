//! The agent's command-line flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    boot::DEFAULT_BOOT_ID_FILE, command_line::CommandLine, reboot_method::RebootMethod, trigger::Trigger,
};

/// The agent's command-line flags. Flatten them into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The agent's node. Default: the environment variable `NODE_NAME`.
    #[arg(
        long = "node",
        value_name = "NAME",
        help = "The agent's node [default: NODE_NAME]",
        help_heading = HEADING
    )]
    pub node: Option<String>,

    /// How to reboot the node
    #[arg(long, value_name = "HOW", value_enum, default_value_t = RebootWith::Logind, help_heading = HEADING)]
    pub reboot_with: RebootWith,

    /// Reboot with this command instead; split at spaces, or a JSON list of strings
    #[arg(long, value_name = "COMMAND", conflicts_with = "reboot_with", help_heading = HEADING)]
    pub reboot_command: Option<CommandLine>,

    /// Address of the D-Bus that logind is on [default: the system bus]
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    pub dbus_address: Option<String>,

    /// Use the system bus even as root, which gives an attacker who takes over this process the whole host
    #[arg(long, help_heading = HEADING)]
    pub allow_root: bool,

    /// The file that contains the boot ID
    #[arg(long, value_name = "FILE", default_value = DEFAULT_BOOT_ID_FILE, help_heading = HEADING)]
    pub boot_id_file: PathBuf,

    /// After a reboot, run this command until it exits with 0, and report it; policies with `healthCheck.agentCheck`
    /// wait for that
    #[arg(long, value_name = "COMMAND", help_heading = HEADING)]
    pub check_command: Option<CommandLine>,

    /// Request a reboot when this file exists, unless it is older than the boot
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub trigger_file: Option<PathBuf>,

    /// Request a reboot when this command exits with 0; 1 means that none is needed
    #[arg(long, value_name = "COMMAND", conflicts_with = "trigger_file", help_heading = HEADING)]
    pub trigger_command: Option<CommandLine>,

    /// How often to check the trigger; commands run for the first time this long after the start
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

/// The predefined ways to reboot a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RebootWith {
    /// Call logind over D-Bus
    #[default]
    Logind,
    /// Run `systemctl reboot`
    Systemctl,
    /// Reboot the simulated node of a Windlass cluster; real nodes are refused
    Simulated,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            node: None,
            reboot_with: RebootWith::default(),
            reboot_command: None,
            dbus_address: None,
            allow_root: false,
            boot_id_file: DEFAULT_BOOT_ID_FILE.into(),
            check_command: None,
            trigger_file: None,
            trigger_command: None,
            trigger_interval: Duration::from_mins(5),
        }
    }
}

impl Arguments {
    pub(super) fn reboot_method(&self) -> RebootMethod {
        match (&self.reboot_command, self.reboot_with) {
            (Some(words), _) => RebootMethod::Command(words.clone()),
            (None, RebootWith::Systemctl) => RebootMethod::Systemctl,
            (None, RebootWith::Simulated) => RebootMethod::Simulated,
            (None, RebootWith::Logind) => RebootMethod::Logind {
                bus: self.dbus_address.clone(),
            },
        }
    }

    pub(super) fn trigger(&self) -> Option<Trigger> {
        let file = || self.trigger_file.clone().map(Trigger::File);
        self.trigger_command.clone().map(Trigger::Command).or_else(file)
    }
}

/// Parses a duration such as `30s`, `5m` or `1h`.
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|time| *time >= Duration::from_secs(1))
        .ok_or_else(|| {
            "invalid duration: expected at least one second, for example `30s`, `5m` or `1h`".to_owned()
        })
}
