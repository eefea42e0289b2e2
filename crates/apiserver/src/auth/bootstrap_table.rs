//! Compares our authorizer with a table of a real server's answers for each bootstrap role and subject
//! (`hack/rbac/table`).

use std::{io::Read, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::json;
use windlass_api::request::Access;

use super::User;
use crate::{Server, media::Encoding, request::Target, server::Api, verbs::WriteOptions};

static DATA: &[u8] = include_bytes!("../../tests/recorded/rbac.json.gz");

#[derive(Deserialize)]
struct Table {
    /// Verb, group, resource, namespace and name; or verb and path.
    questions: Vec<Vec<String>>,
    /// The cluster roles that are also bound in one namespace.
    local: Vec<String>,
    place: String,
    subjects: Vec<SubjectAnswers>,
}

#[derive(Deserialize)]
struct SubjectAnswers {
    user: String,
    groups: Vec<String>,
    /// One bit for each question.
    allowed: String,
}

fn access(question: &[String]) -> Access {
    match question {
        [verb, path] => Access::path(verb, path),
        [verb, group, resource, namespace, name] => {
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let access = Access::resource(verb, group, resource);
            access
                .with_subresource(part)
                .in_namespace(namespace)
                .with_name(name)
        }
        _ => panic!("invalid question: {question:?}"),
    }
}

fn bind(api: &Api, plural: &str, namespace: &str, role: &str, user: &str) {
    let catalogue = api.store.registry.catalogue();
    let resource = catalogue.find("rbac.authorization.k8s.io", "v1", plural);
    let target = Target {
        resource: resource.expect("built in").clone(),
        namespace: namespace.into(),
        name: "".into(),
        subresource: "".into(),
    };
    let body = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let written = api.writes.create(
        &target,
        &WriteOptions::default(),
        body.to_string().as_bytes(),
        Encoding::Json,
    );
    assert!(written.is_ok(), "{role} was bound to {user}");
}

#[tokio::test]
async fn bootstrap_roles_and_subjects_have_the_rights_of_a_real_server() {
    let mut json = Vec::new();
    GzDecoder::new(DATA)
        .read_to_end(&mut json)
        .expect("shipped with the crate");
    let table: Table = serde_json::from_slice(&json).expect("shipped with the crate");
    let server = Server::builder().rbac().build();
    let api: &Arc<Api> = server.api();
    for asked in &table.subjects {
        if let Some(role) = asked.user.strip_prefix("role:") {
            bind(api, "clusterrolebindings", "", role, &asked.user);
        }
    }
    for role in &table.local {
        bind(api, "rolebindings", &table.place, role, &format!("local:{role}"));
    }
    let questions: Vec<_> = table.questions.iter().map(|question| access(question)).collect();
    let (mut wrong, mut allowed) = (Vec::new(), 0);
    for asked in &table.subjects {
        let bits = STANDARD.decode(&asked.allowed).expect("base64");
        let user = User {
            name: asked.user.clone(),
            groups: asked.groups.clone(),
            ..User::default()
        };
        for (place, question) in questions.iter().enumerate() {
            let expected = bits[place / 8] >> (place % 8) & 1 == 1;
            allowed += usize::from(expected);
            if api.access.decide(&user, question).is_allowed() != expected {
                wrong.push(format!(
                    "{} {:?}: {question} is {expected}",
                    user.name, user.groups
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} answers differ: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    // A table of denials alone would prove nothing.
    assert!(
        allowed > 9_000 && table.subjects.len() > 100,
        "{allowed} of {}",
        table.subjects.len()
    );
}

#[tokio::test]
async fn bootstrap_roles_are_already_aggregated() {
    let server = Server::builder().rbac().build();
    let api: &Arc<Api> = server.api();
    let before = api.store.storage.revision();
    api.access.update_aggregated_roles();
    assert_eq!(api.store.storage.revision(), before, "aggregation writes nothing");
}
