//! Runs the Icecream controller against the cluster of the current kubeconfig, or the one it runs in.

use windlass::prelude::*;
use windlass_icecream::{Icecream, controller};

fn main() -> std::process::ExitCode {
    launch("icecream", [Icecream::crd()], |manager| {
        manager.controller(controller())
    })
}
