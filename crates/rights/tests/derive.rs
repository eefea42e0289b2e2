//! Rights derived from what was recorded.

use http::{Method, Request, Response, StatusCode};
use proptest::prelude::*;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use windlass_rights::{Access, Names, Recorder, Rule, Uses};

fn recorded(lines: &[&str]) -> Uses {
    let recorder = Recorder::new();
    for line in lines {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        recorder.note(
            "robot",
            &Access::of(&method.parse().expect("a method"), path, query),
        );
    }
    recorder.uses()
}

#[test]
fn the_least_rights_are_by_place_and_joined_by_verbs() {
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
            Rule::on(["list"], [""], ["nodes"]),
            Rule::on(["watch"], [""], ["pods"]),
            Rule::on_paths(["get"], ["/version"]),
        ]
    );
    assert_eq!(
        rights.namespaces["a"],
        [
            Rule::on(["get"], [""], ["pods", "secrets"]),
            Rule::on(["update"], [""], ["pods/status"]),
            Rule::on(["get", "patch"], ["apps"], ["deployments", "replicasets"]),
        ]
    );
    assert_eq!(rights.namespaces["b"], [Rule::on(["create"], [""], ["events"])]);
    let named = uses.rights_by_name();
    assert_eq!(named.namespaces["a"][0].resource_names, ["x"]);
    assert_eq!(named.namespaces["b"], [Rule::on(["create"], [""], ["events"])]);
}

#[test]
fn what_every_user_may_do_needs_no_rule() {
    let everybody = [Rule::on_paths(["get"], ["/version", "/apis/*"])];
    let uses = recorded(&["GET /version", "GET /apis/apps/v1", "GET /api/v1/pods"]);
    assert_eq!(
        uses.beyond(&everybody).rights().cluster,
        [Rule::on(["list"], [""], ["pods"])]
    );
}

#[test]
fn rights_that_were_never_used_are_named() {
    let uses = recorded(&[
        "GET /api/v1/namespaces/a/pods/x",
        "GET /apis/apps/v1/namespaces/b/deployments",
    ]);
    let granted = [
        Rule::on(["get", "delete"], [""], ["pods", "secrets"]),
        Rule::on(["*"], ["apps"], ["deployments"]),
    ];
    assert_eq!(
        uses.unused(&granted),
        [
            Rule::on(["delete"], [""], ["pods"]),
            Rule::on(["delete", "get"], [""], ["secrets"])
        ]
    );
    assert_eq!(
        uses.within("a").unused(&granted[1..]),
        [Rule::on(["*"], ["apps"], ["deployments"])]
    );
}

#[test]
fn names_beyond_the_limit_are_many() {
    let recorder = Recorder::new();
    for index in 0..=Names::LIMIT {
        recorder.note(
            "robot",
            &Access::resource("get", "", "pods").named(&format!("pod-{index}")),
        );
    }
    let uses = recorder.uses();
    assert_eq!(uses.all.len(), 1);
    assert_eq!(uses.all[0].names, Names::Many);
    assert_eq!(uses.rights_by_name(), uses.rights());
}

#[tokio::test]
async fn the_layer_notes_users_and_refusals() -> Result<(), BoxError> {
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
        .uses()
        .all
        .into_iter()
        .map(|one| (one.user, one.refused))
        .collect();
    assert_eq!(users, [("alice".to_owned(), 1), ("robot".to_owned(), 1)]);
    recorder.clear();
    assert_eq!(recorder.uses(), Uses::default());
    Ok(())
}

/// A server-side apply may create the object, and then needs both rights.
#[tokio::test]
async fn a_patch_that_creates_uses_both_rights() -> Result<(), BoxError> {
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
    let rights = recorder.uses().rights();
    let both = Rule::on(["create", "patch"], [""], ["configmaps"]);
    assert_eq!(rights.namespaces["a"], [both]);
    let named = recorder.uses().rights_by_name();
    let create = Rule::on(["create"], [""], ["configmaps"]);
    assert!(
        named.namespaces["a"].contains(&create),
        "under whatever name: {named:?}"
    );
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
    /// Everything that was used is allowed by the rights that are derived from it, and none of those is unused.
    #[test]
    fn derived_rights_suffice_and_none_is_unused(accesses in prop::collection::vec(access(), 1..24)) {
        let recorder = Recorder::new();
        for access in &accesses {
            recorder.note("robot", access);
        }
        let uses = recorder.uses();
        for rights in [uses.rights(), uses.rights_by_name()] {
            for access in &accesses {
                let own = rights.namespaces.get(access.namespace());
                let mut rules = rights.cluster.iter().chain(own.into_iter().flatten());
                prop_assert!(rules.any(|rule| rule.allows(access)), "{access} by {rights:?}");
            }
            prop_assert_eq!(uses.within("").unused(&rights.cluster), []);
            for (namespace, rules) in &rights.namespaces {
                prop_assert_eq!(uses.within(namespace).unused(rules), []);
            }
        }
    }
}
