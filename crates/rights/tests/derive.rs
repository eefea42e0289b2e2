//! Rights derived from recorded accesses.

use http::{Method, Request, Response, StatusCode};
use proptest::prelude::*;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use windlass_rights::{Access, AccessRecords, Names, Recorder, Rule};

fn recorded(lines: &[&str]) -> AccessRecords {
    let recorder = Recorder::new();
    for line in lines {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        recorder.record(
            "robot",
            &Access::of(&method.parse().expect("a method"), path, query),
        );
    }
    recorder.records()
}

#[test]
fn minimal_rights_are_grouped_by_namespace_and_verbs() {
    let uses = recorded(&[
        "GET /version",
        "GET /api/v1/nodes",
        "GET /api/v1/pods?watch=1",
        "GET /api/v1/namespaces/a/pods/x",
        "GET /api/v1/namespaces/a/secrets/s",
        "PUT /api/v1/namespaces/a/pods/x/status",
        "PATCH /apis/apps/v1/namespaces/a/deployments/d",
        "GET /apis/apps/v1/namespaces/a/deployments/d",
        "GET /apis/apps/v1/namespaces/a/replicasets/d",
        "PATCH /apis/apps/v1/namespaces/a/replicasets/d",
        "POST /api/v1/namespaces/b/events",
    ]);
    let rights = uses.rights();
    assert_eq!(
        rights.cluster,
        [
            Rule::for_resources(["list"], [""], ["nodes"]),
            Rule::for_resources(["list", "watch"], [""], ["pods"]),
            Rule::for_paths(["get"], ["/version"]),
        ]
    );
    assert_eq!(
        rights.namespaces["a"],
        [
            Rule::for_resources(["get"], [""], ["pods", "secrets"]),
            Rule::for_resources(["update"], [""], ["pods/status"]),
            Rule::for_resources(["get", "patch"], ["apps"], ["deployments", "replicasets"]),
        ]
    );
    assert_eq!(
        rights.namespaces["b"],
        [Rule::for_resources(["create"], [""], ["events"])]
    );
    let named = uses.rights_by_name();
    assert_eq!(named.namespaces["a"][0].resource_names, ["x"]);
    assert_eq!(
        named.namespaces["b"],
        [Rule::for_resources(["create"], [""], ["events"])]
    );
}

#[test]
fn unused_rights_are_listed() {
    let uses = recorded(&[
        "GET /api/v1/namespaces/a/pods/x",
        "GET /apis/apps/v1/namespaces/b/deployments",
    ]);
    let granted = [
        Rule::for_resources(["get", "delete"], [""], ["pods", "secrets"]),
        Rule::for_resources(["*"], ["apps"], ["deployments"]),
    ];
    assert_eq!(
        uses.unused(&granted),
        [
            Rule::for_resources(["delete"], [""], ["pods"]),
            Rule::for_resources(["delete", "get"], [""], ["secrets"])
        ]
    );
    assert_eq!(
        uses.in_namespace("a").unused(&granted[1..]),
        [Rule::for_resources(["*"], ["apps"], ["deployments"])]
    );
}

/// A client that streams the initial state lists only after its watch has expired.
#[test]
fn watch_needs_list_too() {
    let uses = recorded(&["GET /api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dx"]);
    let both = Rule::for_resources(["list", "watch"], [""], ["pods"]);
    assert_eq!(uses.rights().namespaces["a"], std::slice::from_ref(&both));
    let named = &uses.rights_by_name().namespaces["a"];
    assert_eq!(
        named[..],
        [Rule {
            resource_names: vec!["x".to_owned()],
            ..both.clone()
        }]
    );
    assert_eq!(uses.unused(&[both]), []);
    let listed = recorded(&["GET /api/v1/namespaces/a/pods"]);
    let watch = Rule::for_resources(["watch"], [""], ["pods"]);
    assert_eq!(
        listed.unused(std::slice::from_ref(&watch)),
        [watch],
        "a list needs no watch"
    );
}

#[test]
fn names_beyond_the_limit_become_many() {
    let recorder = Recorder::new();
    for index in 0..=Names::LIMIT {
        recorder.record(
            "robot",
            &Access::resource("get", "", "pods").with_name(&format!("pod-{index}")),
        );
    }
    let uses = recorder.records();
    assert_eq!(uses.records.len(), 1);
    assert_eq!(uses.records[0].names, Names::Many);
    assert_eq!(uses.rights_by_name(), uses.rights());
}

#[tokio::test]
async fn layer_records_users_and_forbidden_responses() -> Result<(), BoxError> {
    let recorder = Recorder::new();
    let service = recorder.layer("robot").layer(service_fn(async |_: Request<()>| {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::FORBIDDEN;
        Ok::<_, BoxError>(response)
    }));
    service
        .clone()
        .oneshot(Request::get("/api/v1/pods").body(())?)
        .await?;
    let request = Request::get("/api/v1/pods").header("Impersonate-User", "alice");
    service.oneshot(request.body(())?).await?;
    let users: Vec<_> = recorder
        .records()
        .records
        .into_iter()
        .map(|one| (one.user, one.forbidden))
        .collect();
    assert_eq!(users, [("alice".to_owned(), 1), ("robot".to_owned(), 1)]);
    recorder.clear();
    assert_eq!(recorder.records(), AccessRecords::default());
    Ok(())
}

/// A server-side apply may create the object, and then needs both rights.
#[tokio::test]
async fn patch_that_creates_needs_both_verbs() -> Result<(), BoxError> {
    let recorder = Recorder::new();
    let service = service_fn(async |request: Request<()>| {
        let mut response = Response::new(());
        if request.uri().path().ends_with("new") {
            *response.status_mut() = StatusCode::CREATED;
        }
        Ok::<_, BoxError>(response)
    });
    for name in ["old", "new"] {
        let path = format!("/api/v1/namespaces/a/configmaps/{name}");
        let request = Request::patch(path).body(())?;
        recorder.layer("robot").layer(service).oneshot(request).await?;
    }
    let rights = recorder.records().rights();
    let both = Rule::for_resources(["create", "patch"], [""], ["configmaps"]);
    assert_eq!(rights.namespaces["a"], [both]);
    let named = recorder.records().rights_by_name();
    let create = Rule::for_resources(["create"], [""], ["configmaps"]);
    assert!(named.namespaces["a"].contains(&create), "for any name: {named:?}");
    Ok(())
}

fn access() -> impl Strategy<Value = Access> {
    let method = prop::sample::select(vec![
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ]);
    let place = prop::sample::select(vec![
        "/api/v1",
        "/api/v1/namespaces/a",
        "/apis/apps/v1/namespaces/b",
    ]);
    let resource = prop::sample::select(vec![
        "pods",
        "secrets",
        "deployments/x/scale",
        "pods/y",
        "pods/z/log",
    ]);
    let watch = prop::sample::select(vec![
        None,
        Some("watch=1"),
        Some("fieldSelector=metadata.name%3Dq"),
    ]);
    (method, place, resource, watch).prop_map(|(method, place, resource, query)| {
        Access::of(&method, &format!("{place}/{resource}"), query)
    })
}

proptest! {
    /// The derived rights allow every recorded access, and none of them is unused.
    #[test]
    fn derived_rights_suffice_and_none_is_unused(accesses in prop::collection::vec(access(), 1..24)) {
        let recorder = Recorder::new();
        for access in &accesses {
            recorder.record("robot", access);
        }
        let uses = recorder.records();
        for rights in [uses.rights(), uses.rights_by_name()] {
            for access in &accesses {
                let own = rights.namespaces.get(access.namespace());
                let mut rules = rights.cluster.iter().chain(own.into_iter().flatten());
                prop_assert!(rules.any(|rule| rule.allows(access)), "{access} by {rights:?}");
            }
            prop_assert_eq!(uses.in_namespace("").unused(&rights.cluster), []);
            for (namespace, rules) in &rights.namespaces {
                prop_assert_eq!(uses.in_namespace(namespace).unused(rules), []);
            }
        }
    }
}
