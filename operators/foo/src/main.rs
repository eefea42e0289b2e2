//! Runs the sample controller against the cluster of the current kubeconfig, or the one it runs in.

use windlass::prelude::*;
use windlass_foo::{Foo, controller};

fn main() -> std::process::ExitCode {
    launch("foo", [Foo::crd()], |manager| manager.controller(controller()))
}
