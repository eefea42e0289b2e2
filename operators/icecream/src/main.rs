//! Runs the Icecream controller against the current kubeconfig's cluster, or in-cluster.

use windlass::prelude::*;
use windlass_icecream::{Icecream, controller};

fn main() -> std::process::ExitCode {
    launch("icecream", [Icecream::crd()], |manager| {
        manager.controller(controller())
    })
}
