//! Runs the Icecream controller against the current kubeconfig's cluster, or in-cluster.

use windlass::webhook::{Webhooks, launch_with_optional_webhooks};
use windlass_icecream::{add_webhooks, controller, crd};

fn main() -> std::process::ExitCode {
    let (crds, webhooks) = (|enabled| [crd(enabled)], add_webhooks(Webhooks::new("icecream")));
    launch_with_optional_webhooks("icecream", crds, webhooks, |manager| {
        manager.controller(controller())
    })
}
