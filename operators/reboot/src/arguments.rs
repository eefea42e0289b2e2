//! What the controller can be told on the command line, as one group of flags.

use clap::Args;

use crate::state::{Names, PREFIX};

/// What the controller can be told. Flattens into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The prefix of the annotations on nodes
    #[arg(
        long = "annotation-prefix",
        value_name = "DOMAIN",
        default_value = PREFIX,
        value_parser = prefix,
        help_heading = "Reboots"
    )]
    pub prefix: String,

    /// The node that this process runs on, which is rebooted last of all [env: NODE_NAME]
    #[arg(long = "own-node", value_name = "NAME", help_heading = "Reboots")]
    pub own_node: Option<String>,

    /// Is the agent of every node as well, on a cluster whose nodes are all simulated; implies --install
    #[arg(long = "simulated-agents", help_heading = "Reboots")]
    pub simulated_agents: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            prefix: PREFIX.to_owned(),
            own_node: None,
            simulated_agents: false,
        }
    }
}

fn prefix(text: &str) -> Result<String, String> {
    Names::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
