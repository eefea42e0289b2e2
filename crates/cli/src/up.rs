//! `windlass up`: an embedded cluster until Ctrl-C.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Instant};

use windlass_cluster::Cluster;

use crate::{
    embedded::{self, KubeconfigFile, Speed},
    signals::Signals,
};

/// Flags of `windlass up`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of simulated nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,

    /// Address to serve on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to write the kubeconfig; never overwrites one of a running cluster, or a file that windlass did not write
    /// [default: a new file]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Speed of the simulated nodes relative to real ones: a number, or `instant`
    #[arg(long, value_name = "TIMES", default_value = "10")]
    speed: Speed,

    /// Where the server calls the webhooks of a service: a program beside the cluster, such as
    /// `hooks.default=127.0.0.1:9443`; may be repeated
    #[arg(long, value_name = "SERVICE.NAMESPACE=ADDRESS", value_parser = parse_webhook)]
    webhook: Vec<(String, SocketAddr)>,
}

/// Parses `service.namespace=address` into the host of the service and the address.
fn parse_webhook(text: &str) -> Result<(String, SocketAddr), String> {
    let (service, address) = text
        .split_once('=')
        .ok_or("must be SERVICE.NAMESPACE=ADDRESS, such as hooks.default=127.0.0.1:9443")?;
    let service = service.strip_suffix(".svc").unwrap_or(service);
    if service.split('.').count() != 2 || service.split('.').any(str::is_empty) {
        return Err(format!(
            "`{service}` must be the service and its namespace, such as hooks.default"
        ));
    }
    let address = address
        .parse()
        .map_err(|_| format!("`{address}` must be an address with a port, such as 127.0.0.1:9443"))?;
    Ok((format!("{service}.svc"), address))
}

/// Runs the cluster until SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut signals = Signals::new()?;
    let nodes = usize::from(arguments.nodes);
    let mut cluster = Cluster::embedded()
        .listen(arguments.listen)
        .nodes(nodes)
        .speed(arguments.speed.0);
    for (host, address) in &arguments.webhook {
        cluster = cluster.webhook_address(host, *address);
    }
    embedded::with_cluster(cluster, async |cluster| {
        let file = match &arguments.kubeconfig {
            Some(path) => KubeconfigFile::serve_at(cluster, path)?,
            None => KubeconfigFile::serve(cluster)?,
        };
        let ready = embedded::wait_until_ready(cluster.client(), nodes);
        signals
            .unless_stopped(ready, "before the nodes were ready")
            .await??;
        println!(
            "{}",
            file.export_line(cluster, nodes, "Ctrl-C", started.elapsed())
        );
        signals.next().await;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_is_a_service_and_an_address() {
        let address = "127.0.0.1:9443".parse().expect("an address");
        for text in ["hooks.default=127.0.0.1:9443", "hooks.default.svc=127.0.0.1:9443"] {
            assert_eq!(parse_webhook(text), Ok(("hooks.default.svc".to_owned(), address)));
        }
        for text in [
            "hooks=127.0.0.1:9443",
            "hooks.default",
            "a.b.c=127.0.0.1:1",
            ".b=127.0.0.1:1",
            "a.b=localhost",
        ] {
            let error = parse_webhook(text).expect_err(text);
            assert!(error.contains("must be"), "{error}");
        }
    }
}
