//! The first minute: an embedded cluster, the sample controller, and claims that are checked.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::sync::oneshot;
use windlass::{
    k8s_openapi::{
        api::{apps::v1::Deployment, core::v1::Namespace},
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api, Client, CustomResourceExt, ResourceExt,
        api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    },
    prelude::Manager,
};
use windlass_cluster::Cluster;
use windlass_foo::{Foo, FooSpec};

/// How the demo is run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long to wait for each thing that should happen, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience: u64,
}

const NAMESPACE: &str = "demo";
const FOO: &str = "example-foo";

/// Runs the demo; the exit code is a success only if every claim held.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let cluster = Cluster::embedded()
        .start()
        .await
        .context("the embedded cluster did not start")?;
    let client = cluster.client();
    let version = client
        .apiserver_version()
        .await
        .context("the embedded cluster does not answer")?;
    say(
        started,
        &format!(
            "embedded cluster is up: Kubernetes {} in this process",
            version.git_version
        ),
    );

    install(&client).await?;
    say(started, &format!("installed CRD {}", Foo::crd_name()));

    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(client.clone()).controller(windlass_foo::controller());
    let manager = tokio::spawn(manager.run_until(async {
        // A dropped sender means that the demo is over too.
        let _ = stopped.await;
    }));
    say(started, "controller foo is running");

    let story = Story {
        client,
        started,
        patience: Duration::from_secs(arguments.patience),
        claims: Vec::new(),
    };
    let claims = story.tell().await;
    // An error means that the controller is gone already; its own result says why.
    let _ = stop.send(());
    manager
        .await
        .context("the controller's task did not end well")??;
    summary(&claims?)
}

/// Installs the Foo CRD and waits until it is served.
async fn install(client: &Client) -> anyhow::Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    crds.create(&PostParams::default(), &Foo::crd())
        .await
        .context("the Foo CRD was not accepted")?;
    let established = |crd: &CustomResourceDefinition| {
        let conditions = crd
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|c| c.type_ == "Established" && c.status == "True")
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !established(&crds.get(Foo::crd_name()).await?) {
        if Instant::now() > deadline {
            bail!("the Foo CRD was accepted but is not served after 10 s");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

struct Claim {
    text: String,
    held: bool,
}

struct Story {
    client: Client,
    started: Instant,
    patience: Duration,
    claims: Vec<Claim>,
}

impl Story {
    async fn tell(mut self) -> anyhow::Result<Vec<Claim>> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(NAMESPACE.into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::all(self.client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        let foos = Api::<Foo>::namespaced(self.client.clone(), NAMESPACE);
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE);

        let spec = FooSpec {
            deployment_name: FOO.into(),
            replicas: Some(2),
        };
        let foo = foos.create(&PostParams::default(), &Foo::new(FOO, spec)).await?;
        say(
            self.started,
            &format!("created Foo {NAMESPACE}/{FOO} with 2 replicas"),
        );
        let uid = foo.uid().unwrap_or_default();
        self.claim("the Foo got a Deployment with 2 replicas", &deployments, |d| {
            replicas(d) == Some(2)
        })
        .await?;
        self.claim(
            "the Deployment is controlled by the Foo, by UID",
            &deployments,
            |d| {
                d.is_some_and(|d| {
                    d.owner_references()
                        .iter()
                        .any(|o| o.uid == uid && o.controller == Some(true))
                })
            },
        )
        .await?;

        let change = Patch::Merge(serde_json::json!({"spec": {"replicas": 3}}));
        foos.patch(FOO, &PatchParams::default(), &change).await?;
        say(self.started, "asked the Foo for 3 replicas");
        self.claim("the Deployment followed to 3 replicas", &deployments, |d| {
            replicas(d) == Some(3)
        })
        .await?;

        let change = Patch::Merge(serde_json::json!({"spec": {"replicas": 7}}));
        deployments.patch(FOO, &PatchParams::default(), &change).await?;
        say(self.started, "changed the Deployment by hand to 7 replicas");
        self.claim("the drift was repaired, back to 3 replicas", &deployments, |d| {
            replicas(d) == Some(3)
        })
        .await?;

        let before = deployments.get(FOO).await?.uid();
        deployments.delete(FOO, &DeleteParams::default()).await?;
        say(self.started, "deleted the Deployment by hand");
        self.claim(
            "the Deployment was made anew with 3 replicas",
            &deployments,
            |d| replicas(d) == Some(3) && d.and_then(ResourceExt::uid) != before,
        )
        .await?;
        Ok(self.claims)
    }

    /// Looks at the Deployment until a claim about it holds, or patience ends.
    async fn claim(
        &mut self,
        text: &str,
        deployments: &Api<Deployment>,
        holds: impl Fn(Option<&Deployment>) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.patience;
        let held = loop {
            if holds(deployments.get_opt(FOO).await?.as_ref()) {
                break true;
            }
            if Instant::now() > deadline {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        say(self.started, &format!("{} {text}", mark(held)));
        self.claims.push(Claim {
            text: text.to_owned(),
            held,
        });
        Ok(())
    }
}

fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.as_ref()?.replicas
}

fn summary(claims: &[Claim]) -> anyhow::Result<ExitCode> {
    let failed: Vec<_> = claims.iter().filter(|claim| !claim.held).collect();
    println!();
    if claims.is_empty() {
        bail!("nothing was claimed");
    }
    if failed.is_empty() {
        println!(
            "{} of {} claims held, each checked against the API.",
            claims.len(),
            claims.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} of {} claims did not hold:", failed.len(), claims.len());
    for claim in failed {
        println!("  {} {}", mark(false), claim.text);
    }
    Ok(ExitCode::FAILURE)
}

fn mark(held: bool) -> &'static str {
    if held { "✔" } else { "✘" }
}

fn say(started: Instant, what: &str) {
    println!("{:>7.1} ms  {what}", started.elapsed().as_secs_f64() * 1000.0);
}
