//! Runs the sample controller against the current kubeconfig's cluster, or in-cluster.

use windlass::prelude::*;
use windlass_foo::{Foo, controller};

fn main() -> std::process::ExitCode {
    launch("foo", [Foo::crd()], |manager| manager.controller(controller()))
}
