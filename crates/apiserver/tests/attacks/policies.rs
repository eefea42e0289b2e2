//! Admission policies that try to take the server's time, memory or stack, or to move objects.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_apiserver::Server;

use crate::{
    attacks::storage::HookedStorage,
    client::{read, send},
};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with a bound policy about ConfigMaps: `validating` or `mutating`, with these fields of its spec.
async fn server_with(kind: &str, fields: Value) -> Server {
    let server = Server::new();
    let mut spec = json!({"matchConstraints": {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]},
    ]}});
    let mut binding = json!({"policyName": "p"});
    if kind == "validating" {
        binding["validationActions"] = json!(["Deny"]);
    } else {
        spec["reinvocationPolicy"] = "IfNeeded".into();
    }
    for (key, value) in fields.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    for (plural, spec) in [("policies", spec), ("policybindings", binding)] {
        let path = format!("{GROUP}/{kind}admission{plural}");
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        let (code, answer) = read(send(&server, "POST", &path, None, object.to_string()).await).await;
        assert_eq!(code, 201, "{answer}");
    }
    server
}

/// Creates a ConfigMap with this many entries.
async fn create_map(server: &Server, entries: usize) -> (u16, String) {
    let data: serde_json::Map<_, _> = (0..entries)
        .map(|index| (format!("k{index}"), Value::from("v")))
        .collect();
    let map = json!({"metadata": {"name": "a"}, "data": data});
    let (code, answer) = read(send(server, "POST", MAPS, None, map.to_string()).await).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn expensive_validation_ends_at_its_cost_limit() {
    let expression = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != 'x')))";
    let server = server_with("validating", json!({"validations": [{"expression": expression}]})).await;
    assert_eq!(create_map(&server, 5).await.0, 201);
    let (code, why) = create_map(&server, 500).await;
    assert_eq!(code, 422);
    assert!(
        why.ends_with("operation cancelled: actual cost limit exceeded"),
        "{why}"
    );
}

#[tokio::test]
async fn slow_policy_about_a_service_does_not_delay_other_services() {
    let (reached, was_reached) = std::sync::mpsc::channel();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    // The policy of `slow` reads its parameters while it is evaluated.
    let storage = HookedStorage::default().on_snapshot(move |table| {
        if **table == *"configmaps" && reached.send(()).is_ok() {
            let _ = waits
                .lock()
                .expect("no panic")
                .recv_timeout(Duration::from_secs(30));
        }
    });
    let server = Server::builder().storage(storage).build();
    let post = async |path: &str, object: Value| {
        let (code, answer) = read(send(&server, "POST", path, None, object.to_string()).await).await;
        assert_eq!(code, 201, "{answer}");
    };
    post("/api/v1/namespaces", json!({"metadata": {"name": "slow"}})).await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "slow"}},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["services"]}],
        },
        "validations": [{"expression": "true"}],
    });
    let path = format!("{GROUP}/validatingadmissionpolicies");
    post(&path, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let spec = json!({
        "policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
    });
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    post(&path, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let create = |namespace: &'static str| {
        let server = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}).to_string();
            let path = format!("/api/v1/namespaces/{namespace}/services");
            let create = async { read(send(&server, "POST", &path, None, service).await).await };
            runtime.expect("a runtime").block_on(create)
        })
    };
    let slow = create("slow");
    was_reached
        .recv_timeout(Duration::from_secs(30))
        .expect("the policy is evaluated");
    let other = create("default");
    let since = std::time::Instant::now();
    while !other.is_finished() && since.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(other.is_finished(), "another service waits for the policy");
    let (code, other) = other.join().expect("no panic");
    assert_eq!(code, 201, "{other}");
    drop(was_reached);
    drop(go_on);
    let (code, slow) = slow.join().expect("no panic");
    assert_eq!(code, 201, "{slow}");
    assert_ne!(slow["spec"]["clusterIP"], other["spec"]["clusterIP"]);
}

#[tokio::test]
async fn many_expensive_validations_share_a_budget() {
    let expression = "object.data.all(a, object.data.all(b, a + b != 'x'))";
    let validations = vec![json!({"expression": expression}); 100];
    let server = server_with("validating", json!({"validations": validations})).await;
    let (code, why) = create_map(&server, 250).await;
    assert_eq!(code, 422);
    assert!(
        why.ends_with("running out of cost budget, no further validation rules will be run"),
        "{why}"
    );
}

#[tokio::test]
async fn mutation_that_multiplies_the_object_is_refused() {
    let copies = "lists.range(20000).map(i, object)";
    let expression = format!("[JSONPatch{{op: 'add', path: '/data', value: {copies}}}]");
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let server = server_with("mutating", json!({"mutations": [mutation]})).await;
    let (code, why) = create_map(&server, 1000).await;
    assert_eq!(code, 403);
    assert!(why.ends_with("the result of the mutation is too large"), "{why}");
}

#[tokio::test]
async fn mutation_that_grows_the_object_runs_twice_at_most() {
    let expression =
        "[JSONPatch{op: 'add', path: '/data', value: {'n': has(object.data) ? object.data.n + '+' : '+'}}]";
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let server = server_with("mutating", json!({"mutations": [mutation]})).await;
    let map = json!({"metadata": {"name": "a"}}).to_string();
    let (code, answer) = read(send(&server, "POST", MAPS, None, map).await).await;
    assert_eq!((code, &answer["data"]["n"]), (201, &json!("++")));
}

#[tokio::test]
async fn long_chain_of_variables_does_not_overflow_the_stack() {
    let variable = |index: usize| {
        let expression = match index {
            0 => "1".to_owned(),
            _ => format!("variables.v{} + 1", index - 1),
        };
        json!({"name": format!("v{index}"), "expression": expression})
    };
    let variables: Vec<_> = (0..1000).map(variable).collect();
    let validations = json!([{"expression": "variables.v999 == 1000"}]);
    let fields = json!({"variables": variables, "validations": validations});
    let server = server_with("validating", fields.clone()).await;
    assert_eq!(create_map(&server, 1).await.0, 201);
    // One more is refused.
    let mut spec = fields;
    spec["variables"]
        .as_array_mut()
        .expect("a list")
        .push(variable(1000));
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    let changes = json!({"spec": spec}).to_string();
    let (code, answer) = read(send(&server, "PATCH", &path, None, changes).await).await;
    assert_eq!(code, 422);
    assert_eq!(answer["details"]["causes"][0]["field"], "spec.variables");
}

#[tokio::test]
async fn policy_sees_deeply_nested_objects() {
    let server = server_with("validating", json!({
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["things"]},
        ]},
        "validations": [{"expression": "oldObject == null || object.spec == oldObject.spec"}],
    }))
    .await;
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, _) = read(send(&server, "POST", path, None, definition.to_string()).await).await;
    assert_eq!(code, 201);
    let things = "/apis/example.com/v1/namespaces/default/things";
    let spec = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    let thing = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec}}}"#
    );
    let (code, _) = read(send(&server, "POST", things, None, thing).await).await;
    assert_eq!(code, 201);
    let one = format!("{things}/a");
    let change =
        async |changes: Value| read(send(&server, "PATCH", &one, None, changes.to_string()).await).await;
    let (code, _) = change(json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(code, 200);
    let (code, answer) = change(json!({"spec": {"b": 1}})).await;
    let why = answer["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422);
    assert!(why.contains("failed expression: oldObject == null"), "{why}");
}

#[tokio::test]
async fn policy_that_denies_everything_can_be_deleted() {
    let server = server_with(
        "validating",
        json!({
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]},
            ]},
            "validations": [{"expression": "false"}],
        }),
    )
    .await;
    assert_eq!(create_map(&server, 1).await.0, 422);
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    assert_eq!(send(&server, "DELETE", &path, None, "").await.status(), 200);
    assert_eq!(create_map(&server, 1).await.0, 201);
}

/// A policy could otherwise write into namespaces where its subject may not.
#[tokio::test]
async fn mutation_cannot_move_an_object_to_another_namespace() {
    for place in ["namespace", "name"] {
        let expression = format!("[JSONPatch{{op: 'add', path: '/metadata/{place}', value: 'kube-system'}}]");
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
        let condition = json!([{"name": "update", "expression": "request.operation == 'UPDATE' || true"}]);
        let fields = json!({"mutations": [mutation], "matchConditions": condition});
        let server = server_with("mutating", fields).await;
        let (code, why) = create_map(&server, 1).await;
        // A new object may get another name, as on a real server.
        let expected = if place == "namespace" { 400 } else { 201 };
        assert_eq!(code, expected, "{place}: {why}");
    }
}

#[tokio::test]
async fn policy_with_too_many_parameters_is_not_evaluated() {
    let server = server_with(
        "validating",
        json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "validations": [{"expression": "true"}]}),
    )
    .await;
    let reference = json!({"spec": {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}});
    let path = format!("{GROUP}/validatingadmissionpolicybindings/p");
    let (code, answer) = read(send(&server, "PATCH", &path, None, reference.to_string()).await).await;
    assert_eq!(code, 200, "{answer}");
    let secrets = MAPS.replace("configmaps", "secrets");
    for index in 0..=1_000 {
        let secret = json!({"metadata": {"name": format!("s{index}")}}).to_string();
        assert_eq!(send(&server, "POST", &secrets, None, secret).await.status(), 201);
        if index == 999 {
            assert_eq!(create_map(&server, 1).await.0, 201);
        }
    }
    let (code, why) = create_map(&server, 1).await;
    assert_eq!(code, 422);
    assert!(
        why.ends_with("paramRef.selector selects more than 1000 params"),
        "{why}"
    );
}

/// Expressions that read many variables would otherwise spend the budget many times before it is looked at.
#[tokio::test]
async fn variables_end_with_the_budget() {
    let expensive = "object.data.all(a, object.data.all(b, a + b != 'x'))";
    let variables: Vec<_> = (0..500)
        .map(|index| json!({"name": format!("v{index}"), "expression": format!("{expensive} || {index} == 0")}))
        .collect();
    let all = (0..500)
        .map(|index| format!("variables.v{index}"))
        .collect::<Vec<_>>();
    let validations = json!([{"expression": format!("[{}].all(v, v)", all.join(", "))}]);
    let fields = json!({"variables": variables, "validations": validations});
    let server = server_with("validating", fields).await;
    let (code, why) = create_map(&server, 250).await;
    assert_eq!(code, 422);
    assert!(why.contains("running out of cost budget"), "{why}");
}
