//! The namespace controller.

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, WatchParams},
};
use serde_json::json;
use windlass_suite::Context;

use crate::upkeep::recorded_watch::{
    RecordedWatch, config_map, config_maps_in, create, eventually, resource,
};

/// The conditions of a namespace without problems: type, reason and message.
const SUCCESS_CONDITIONS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

fn success_conditions() -> String {
    let all: Vec<_> = SUCCESS_CONDITIONS
        .iter()
        .map(|(of, reason, message)| format!("{of}=False/{reason}/{message}"))
        .collect();
    all.join("; ")
}

/// Formats `phase [spec finalizers] [metadata finalizers] conditions`, without the name, which differs between runs.
fn format_namespace(namespace: &DynamicObject) -> String {
    let data = &namespace.data;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let conditions: Vec<_> = data["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| {
            let [of, status, reason, message] =
                ["type", "status", "reason", "message"].map(|key| text(&condition[key]));
            format!("{of}={status}/{reason}/{message}")
        })
        .collect();
    let finalizers: Vec<_> = data["spec"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(text)
        .collect();
    format!(
        "{} [{}] [{}] {}",
        text(&data["status"]["phase"]),
        finalizers.join(","),
        namespace.finalizers().join(","),
        conditions.join("; ")
    )
}

/// A namespace for the case to delete, and a watch of it.
struct WatchedNamespace {
    client: Client,
    name: String,
    api: Api<DynamicObject>,
    watch: RecordedWatch,
}

impl WatchedNamespace {
    async fn new(ctx: &Context, finalizers: &[&str], spec: &[&str]) -> Result<Self> {
        let name = format!("{}-gone", ctx.namespace());
        let api = Api::all_with(ctx.client(), &resource("", "v1", "Namespace"));
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let watch = RecordedWatch::start_with(&api, &only, format_namespace).await?;
        create(
            &api,
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "finalizers": finalizers}, "spec": {"finalizers": spec}}),
        )
        .await?;
        Ok(Self {
            client: ctx.client(),
            name,
            api,
            watch,
        })
    }

    fn config_maps(&self) -> Api<DynamicObject> {
        config_maps_in(self.client.clone(), &self.name)
    }

    async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::background()).await?;
        Ok(())
    }
}

pub(crate) async fn empty_namespace_is_deleted(ctx: Context) -> Result<()> {
    let mut place = WatchedNamespace::new(&ctx, &[], &["kubernetes"]).await?;
    place.delete().await?;
    let well = success_conditions();
    let lines = place
        .watch
        .until(&format!("DELETED Terminating [kubernetes] [] {well}"))
        .await?;
    assert_eq!(
        lines,
        [
            "ADDED Active [kubernetes] [] ".to_owned(),
            "MODIFIED Terminating [kubernetes] [] ".to_owned(),
            format!("MODIFIED Terminating [kubernetes] [] {well}"),
            format!("DELETED Terminating [kubernetes] [] {well}"),
        ]
    );
    Ok(())
}

pub(crate) async fn remaining_finalizer_is_reported_and_awaited(ctx: Context) -> Result<()> {
    let mut place = WatchedNamespace::new(&ctx, &[], &["kubernetes"]).await?;
    let api = place.config_maps();
    config_map(&api, "free", &[]).await?;
    create(
        &api,
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "stuck", "finalizers": ["example.com/stuck"]}}),
    )
    .await?;
    place.delete().await?;
    let well = success_conditions();
    let stuck = well
        .replace(
            "False/ContentRemoved/All content successfully removed",
            "True/SomeResourcesRemain/Some resources are remaining: configmaps. has 1 resource instances",
        )
        .replace(
            "False/ContentHasNoFinalizers/All content-preserving finalizers finished",
            "True/SomeFinalizersRemain/Some content in the namespace has finalizers remaining: example.com/stuck in 1 resource instances",
        );
    place
        .watch
        .until(&format!("MODIFIED Terminating [kubernetes] [] {stuck}"))
        .await?;
    assert!(api.get_opt("free").await?.is_none());
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("stuck", &PatchParams::default(), &Patch::Merge(release))
        .await?;
    let lines = place
        .watch
        .until(&format!("DELETED Terminating [kubernetes] [] {well}"))
        .await?;
    assert_eq!(
        lines[1..],
        [
            "MODIFIED Terminating [kubernetes] [] ".to_owned(),
            format!("MODIFIED Terminating [kubernetes] [] {stuck}"),
            format!("MODIFIED Terminating [kubernetes] [] {well}"),
            format!("DELETED Terminating [kubernetes] [] {well}"),
        ]
    );
    Ok(())
}

pub(crate) async fn namespace_deletion_removes_pods_first(ctx: Context) -> Result<()> {
    let mut place = WatchedNamespace::new(&ctx, &[], &["kubernetes"]).await?;
    let config_maps = place.config_maps();
    config_map(&config_maps, "needed", &[]).await?;
    let pods = Api::namespaced_with(place.client.clone(), &place.name, &resource("", "v1", "Pod"));
    let accounts = Api::<ServiceAccount>::namespaced(place.client.clone(), &place.name);
    eventually("the pod's account", async || {
        Ok(accounts.get_opt("default").await?)
    })
    .await?;
    // A pod on a nonexistent node is never terminated by a kubelet.
    create(
        &pods,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "nodeName": "nowhere", "terminationGracePeriodSeconds": 30, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
        }}),
    )
    .await?;
    place.delete().await?;
    let well = success_conditions();
    let emptied = format!("MODIFIED Terminating [kubernetes] [] {well}");
    place.watch.until(&emptied).await?;
    assert!(pods.get("p").await?.metadata.deletion_timestamp.is_some());
    assert!(
        config_maps.get_opt("needed").await?.is_some(),
        "the pod still exists"
    );
    pods.delete("p", &DeleteParams::default().grace_period(0)).await?;
    let lines = place
        .watch
        .until(&format!("DELETED Terminating [kubernetes] [] {well}"))
        .await?;
    // A real controller retries after half of the grace period.
    assert_eq!(lines.len(), 4, "{lines:#?}");
    Ok(())
}

pub(crate) async fn foreign_namespace_finalizers_are_kept(ctx: Context) -> Result<()> {
    let mut place =
        WatchedNamespace::new(&ctx, &["example.com/ns"], &["kubernetes", "example.com/spec"]).await?;
    place.delete().await?;
    let well = success_conditions();
    let left = format!("MODIFIED Terminating [example.com/spec] [example.com/ns] {well}");
    let lines = place.watch.until(&left).await?;
    assert_eq!(
        lines[2],
        format!("MODIFIED Terminating [kubernetes,example.com/spec] [example.com/ns] {well}")
    );
    // Let the namespace be deleted.
    let release = json!({"metadata": {"finalizers": null}});
    place
        .api
        .patch(&place.name, &PatchParams::default(), &Patch::Merge(release))
        .await?;
    Ok(())
}
