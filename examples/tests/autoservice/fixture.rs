//! Fixture: a case's namespace, and the controller with its shipped rights.

use std::{ops::Deref, time::Duration};

use windlass::{
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{Event, Service, ServicePort},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment};

use crate::autoservice::program::{ANNOTATION, controller};

/// Without requests for this long, the controller is idle.
const IDLE_AFTER: Duration = Duration::from_millis(300);

pub(crate) struct Fixture(TestEnvironment);

impl Deref for Fixture {
    type Target = TestEnvironment;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The rights in autoservice.rbac.yaml.
pub(crate) fn shipped() -> ManifestRoles {
    ManifestRoles::parse(include_str!("../../autoservice.rbac.yaml")).expect("a manifest of roles")
}

impl Fixture {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        Self::with(case, &shipped()).await
    }

    pub(crate) async fn with(case: &Case, rights: &ManifestRoles) -> anyhow::Result<Self> {
        let client = rights.client(case).await?;
        Ok(Self(TestEnvironment::with_client(case, &client)))
    }

    pub(crate) fn start(&self) -> RunningManager {
        RunningManager::start(self.manager().controller(controller()))
    }

    /// Creates a Deployment `web` with these ports in its only container.
    pub(crate) async fn create_web(
        &self,
        annotation: Option<&str>,
        ports: &[i32],
    ) -> anyhow::Result<Deployment> {
        let ports: Vec<_> = ports
            .iter()
            .map(|port| json!({ "containerPort": port }))
            .collect();
        Ok(self
            .create(web(annotation, &json!([container("web", &json!(ports))]))?)
            .await?)
    }

    /// Replaces the containers of `web`.
    pub(crate) async fn set_containers(&self, containers: &[Value]) -> anyhow::Result<()> {
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        self.patch::<Deployment>("web", patch).await?;
        Ok(())
    }

    pub(crate) async fn annotate(&self, value: Option<&str>) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION: value } } });
        self.patch::<Deployment>("web", patch).await?;
        Ok(())
    }

    /// Waits until the Service `web` has exactly these ports.
    pub(crate) async fn wait_for_ports(&self, expected: &[&str]) -> anyhow::Result<Arc<Service>> {
        self.wait_for::<Service>("web", |service| ports(service) == expected)
            .await
    }

    /// Waits for a warning event about the Deployment.
    pub(crate) async fn wait_for_warning(&self, web: &Deployment, reason: &str) -> anyhow::Result<String> {
        let warns = |event: &Event| event.reason.as_deref() == Some(reason);
        let event = self.wait_for_event(web, warns).await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        Ok(event.message.unwrap_or_default())
    }

    pub(crate) async fn wait_until_idle(&self) {
        self.proxy().wait_until_idle(IDLE_AFTER).await;
    }

    /// The controller's writes of Services since the last `clear`, in order.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.proxy().writes();
        let services = writes.iter().filter(|write| write.resource() != "events");
        services.map(ToString::to_string).collect()
    }
}

/// A Deployment `web` with these containers.
pub(crate) fn web(annotation: Option<&str>, containers: &Value) -> anyhow::Result<Deployment> {
    let labels = json!({ "app": "web" });
    let annotations = annotation.map(|value| json!({ ANNOTATION: value }));
    Ok(from_value(json!({
        "metadata": { "name": "web", "annotations": annotations },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
        },
    }))?)
}

pub(crate) fn container(name: &str, ports: &Value) -> Value {
    json!({ "name": name, "image": "nginx", "ports": ports })
}

/// The ports of a Service, such as `tcp-80: TCP 80 to 80`.
pub(crate) fn ports(service: &Service) -> Vec<String> {
    let text = |port: &ServicePort| {
        let (name, protocol) = (port.name.as_deref(), port.protocol.as_deref());
        let target = json!(port.target_port);
        format!(
            "{}: {} {} to {target}",
            name.unwrap_or("-"),
            protocol.unwrap_or("-"),
            port.port
        )
    };
    let spec = service.spec.as_ref();
    spec.into_iter()
        .flat_map(|spec| spec.ports.iter().flatten())
        .map(text)
        .collect()
}
