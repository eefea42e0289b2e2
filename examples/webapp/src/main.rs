//! Runs the WebApp controller against the current kubeconfig's cluster, or in-cluster.

use std::process::ExitCode;

use http::Uri;
use windlass::{clap, clap::Parser, prelude::*};
use windlass_webapp::{DataService, WebApp, controller};

#[derive(Parser)]
#[command(name = "webapp")]
struct Program {
    /// URL of the service that deletes the data of a deleted `WebApp`
    #[arg(long, value_name = "URL")]
    data_service: Uri,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Program {
        data_service,
        options,
    } = Program::parse();
    let webapps = controller(DataService::new(data_service));
    launch_with("webapp", &options, [WebApp::crd()], async |manager, _client| {
        Ok(manager.controller(webapps))
    })
}
