//! The controller on clusters, with its shipped rights: written only with `windlass` and `windlass-cluster`.
//!
//! Every case runs on an embedded cluster of its own with a paused clock, where an hour of time-to-live takes milliseconds, and
//! on a real kube-apiserver. `WINDLASS_BACKENDS` selects `embedded` or `real`, both are the default. If there is no real control
//! plane on this machine, its test prints that; with `WINDLASS_REQUIRE_REAL=1` it fails.

#[path = "clusters/children.rs"]
mod children;
#[path = "clusters/deletion.rs"]
mod deletion;
#[path = "clusters/fixture.rs"]
mod fixture;

use std::env;

use windlass::tokio;
use windlass_cluster::Cluster;

use fixture::Fixture;

/// Declares the cases: a test for each on an embedded cluster, and one for all on a real one, which takes seconds to start.
macro_rules! cases {
    ($($module:ident::$case:ident),* $(,)?) => {
        mod embedded {
            use super::*;

            $(#[tokio::test(start_paused = true)]
            async fn $case() -> anyhow::Result<()> {
                if !is_selected("embedded") {
                    return Ok(());
                }
                let cluster = Cluster::embedded().start().await?;
                $module::$case(&Fixture::new(&cluster, "embedded").await?).await?;
                cluster.stop().await;
                Ok(())
            })*
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn all_cases_on_a_real_server() -> anyhow::Result<()> {
            if !is_selected("real") {
                return Ok(());
            }
            if env::var("WINDLASS_REQUIRE_REAL").is_ok_and(|required| required == "1") {
                Cluster::real().available()?;
            } else if let Err(reason) = Cluster::real().available() {
                eprintln!("not run on a real server: {reason}");
                return Ok(());
            }
            let cluster = Cluster::real().start().await?;
            $(
                eprintln!(stringify!($case));
                let namespace = stringify!($case).replace('_', "-");
                $module::$case(&Fixture::new(&cluster, &namespace).await?).await?;
            )*
            cluster.stop().await;
            Ok(())
        }
    };
}

cases!(
    children::webapp_gets_its_children_and_becomes_ready,
    children::webapp_is_not_ready_with_pods_of_the_old_image,
    children::changed_secret_restarts_the_pods,
    children::missing_secret_keeps_the_children,
    children::ingress_is_deleted_with_the_host,
    children::server_enforces_the_rules,
    deletion::data_is_deleted_before_the_webapp,
    deletion::failed_deletion_of_data_is_retried,
    deletion::preview_is_deleted_when_its_time_has_passed,
    deletion::preview_without_its_secret_is_deleted_too,
);

fn is_selected(backend: &str) -> bool {
    let selected = env::var("WINDLASS_BACKENDS").unwrap_or_default();
    selected.trim().is_empty() || selected.split(',').any(|name| name.trim() == backend)
}
