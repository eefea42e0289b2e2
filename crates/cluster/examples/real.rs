//! Starts real control planes, prints how long it took, and stops them on Enter:
//! `cargo run -p windlass-cluster --example real`.

use std::time::Instant;

use windlass_cluster::Cluster;

#[tokio::main]
async fn main() -> Result<(), windlass_cluster::Error> {
    let started = Instant::now();
    let cluster = Cluster::real().start().await?;
    println!(
        "kube-apiserver {} is ready after {:.1?}",
        cluster.version(),
        started.elapsed()
    );

    let started = Instant::now();
    let full = Cluster::real().controllers().scheduler().start().await?;
    println!(
        "another one, with controllers and scheduler, after {:.1?}",
        started.elapsed()
    );

    println!("kubectl --kubeconfig {} get all -A", full.kubeconfig()?.display());
    println!("Press Enter to stop");
    let _ = std::io::stdin().read_line(&mut String::new());

    let stopped = Instant::now();
    cluster.stop().await;
    full.stop().await;
    println!("stopped after {:.1?}", stopped.elapsed());
    Ok(())
}
