//! The declarative style: a function returns the desired children and status of an object, and the controller applies them.
//!
//! A Website gets a ConfigMap with its page and a Deployment that serves it. Both are owned by the Website, corrected when
//! they drift, and deleted when the function no longer returns them. The status follows the Deployment.
//!
//! ```sh
//! cargo run -p windlass-examples --bin declarative -- --embedded   # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin declarative -- --install    # runs on the kubeconfig's cluster
//! ```

use windlass::{
    k8s_openapi::{
        api::{apps::v1::Deployment, core::v1::ConfigMap},
        apimachinery::pkg::apis::meta::v1::Condition,
    },
    prelude::*,
};
use windlass_examples::{User, example};

/// Desired state of a [`Website`].
#[windlass::resource(group = "example.com", version = "v1")]
#[kube(kind = "Website", namespaced, status = "WebsiteStatus")]
struct WebsiteSpec {
    /// The page.
    html: String,
    /// The number of replicas. Default: the Deployment's default, one.
    replicas: Option<i32>,
}

/// Observed state of a [`Website`].
#[windlass::api_type]
#[derive(Default)]
struct WebsiteStatus {
    #[serde(default)]
    available_replicas: i32,
    #[serde(default)]
    #[schemars(schema_with = "windlass::schemas::conditions")]
    conditions: Vec<Condition>,
}

/// Called when a Website or one of its children changes.
async fn desired(website: Arc<Website>, ctx: Context) -> Result<Desired, Error> {
    let name = website.name_any();
    if website.spec.html.is_empty() {
        // Not retried: it becomes a warning event about the Website, and existing children stay.
        return Err(Error::terminal("spec.html is empty: set it"));
    }
    let page: ConfigMap = from_value(json!({
        "metadata": { "name": name }, "data": { "index.html": website.spec.html },
    }))?;
    let labels = json!({ "website": name });
    let mount = json!({ "name": "page", "mountPath": "/usr/share/nginx/html" });
    let nginx = json!({ "name": "nginx", "image": "nginx:latest", "volumeMounts": [mount] });
    let volume = json!({ "name": "page", "configMap": { "name": name } });
    let pod = json!({ "containers": [nginx], "volumes": [volume] });
    let server: Deployment = from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": website.spec.replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    }))?;
    let existing = ctx.get::<Deployment>(&name)?; // from the cache
    let status = existing.as_ref().and_then(|server| server.status.as_ref());
    let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
    let ready = if available >= website.spec.replicas.unwrap_or(1) {
        ConditionUpdate::true_("Ready", "Available")
    } else {
        ConditionUpdate::false_("Ready", "Starting")
    };
    Ok(Desired::new()
        .child(page)
        .child(server)
        .status(json!({ "availableReplicas": available }))
        .condition(ready))
}

fn main() -> std::process::ExitCode {
    let websites = Controller::<Website>::new("website");
    let websites = websites.owns::<ConfigMap>().owns::<Deployment>();
    let setup = |manager: Manager| manager.controller(websites.declare(desired));
    example("declarative", [Website::crd()], setup, demo)
}

async fn demo(user: User) -> Result<(), Error> {
    let home = json!({ "metadata": { "name": "home" }, "spec": { "html": "hello", "replicas": 2 } });
    user.create::<Website>(home).await?;
    let is_ready = |website: &Website| {
        let mut conditions = website.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let home = user.wait_for("home", is_ready).await?;
    let status = home.status.as_ref().ok_or("no status")?;
    println!("home is ready with {} replicas", status.available_replicas);

    let change = json!({ "spec": { "html": "goodbye" } });
    user.patch::<Website>("home", change).await?;
    let has_changed = |page: &ConfigMap| json!(page.data)["index.html"] == "goodbye";
    let page = user.wait_for("home", has_changed).await?;
    println!(
        "its page has changed, owned by {}",
        page.owner_references()[0].kind
    );

    let server = user.wait_for::<Deployment>("home", |_| true).await?;
    user.delete::<Deployment>("home").await?;
    user.wait_for::<Deployment>("home", |now| now.uid() != server.uid())
        .await?;
    println!("its deleted Deployment is back");
    Ok(())
}
