//! Which ports the Service has.

use windlass::{k8s_openapi::api::core::v1::Service, prelude::*};
use windlass_suite::Context as Case;

use crate::autoservice::fixture::{Fixture, container, web};

pub(crate) async fn changed_ports_update_the_service_in_place(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(Some("true"), &[80]).await?;
    let first = fixture.wait_for_ports(&["tcp-80: TCP 80 to 80"]).await?;
    for (ports, expected) in [
        (
            json!([{ "containerPort": 80 }, { "containerPort": 443 }]),
            &["tcp-80: TCP 80 to 80", "tcp-443: TCP 443 to 443"][..],
        ),
        (
            json!([{ "containerPort": 8080, "name": "http" }]),
            &["tcp-8080: TCP 8080 to 8080"],
        ),
    ] {
        fixture.wait_until_idle().await;
        fixture.set_containers(&[container("web", &ports)]).await?;
        let service = fixture.wait_for_ports(expected).await?;
        assert_eq!(service.uid(), first.uid());
        assert_eq!(json!(service.spec)["clusterIP"], json!(first.spec)["clusterIP"]);
    }
    running.stop().await
}

/// Two containers may name a port alike, and one number may have two protocols.
pub(crate) async fn ports_of_all_containers_are_exposed_once(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let dns = json!([{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53, "name": "dns" }]);
    let metrics = json!([{ "containerPort": 53 }, { "containerPort": 9153, "name": "metrics" }]);
    let containers = json!([container("dns", &dns), container("metrics", &metrics)]);
    fixture.create(web(Some("true"), &containers)?).await?;
    fixture
        .wait_for_ports(&[
            "tcp-53: TCP 53 to 53",
            "udp-53: UDP 53 to 53",
            "tcp-9153: TCP 9153 to 9153",
        ])
        .await?;
    running.stop().await
}

pub(crate) async fn removing_all_ports_deletes_the_service(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.set_containers(&[container("web", &json!([]))]).await?;
    fixture.wait_until_deleted::<Service>("web").await?;
    let message = fixture.wait_for_warning(&web, "NoPorts").await?;
    assert!(message.contains("at least one"), "{message}");
    running.stop().await
}

pub(crate) async fn match_expressions_are_reported(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let containers = json!([container("web", &json!([{ "containerPort": 80 }]))]);
    let mut web = web(Some("true"), &containers)?;
    let expression = json!({ "key": "app", "operator": "In", "values": ["web", "api"] });
    let selector = from_value(json!({ "matchExpressions": [expression] }))?;
    web.spec.get_or_insert_default().selector = selector;
    let web = fixture.create(web).await?;
    let message = fixture.wait_for_warning(&web, "ErrInvalid").await?;
    assert!(message.contains("matchExpressions"), "{message}");
    assert_eq!(fixture.writes(), [""; 0]);
    running.stop().await
}
