//! Requests that are long in ways schemas do not describe: duplicate keys, selectors, headers, operations, and pairs of
//! lists that refer to each other.

use serde_json::{Value, json};

use crate::{
    custom_resources::{self, CRDS},
    harness::{Harness, JSON},
};

/// A request to send.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

pub(crate) fn get(path: String) -> Request {
    Request {
        method: "GET",
        path,
        kind: JSON,
        headers: Vec::new(),
        body: String::new(),
    }
}

pub(crate) fn post(path: &str, body: impl ToString) -> Request {
    Request {
        method: "POST",
        path: path.to_owned(),
        kind: JSON,
        headers: Vec::new(),
        body: body.to_string(),
    }
}

pub(crate) fn patch(kind: &'static str, path: &str, body: &Value) -> Request {
    Request {
        method: "PATCH",
        kind,
        ..post(path, body)
    }
}

/// Makes a request of a size. The second number is unique per call, for names.
type MakeRequest = fn(usize, usize) -> Request;

const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Created before all requests.
pub(crate) const EXISTING_MAP: &str = "/api/v1/namespaces/default/configmaps/kept";
const JSON_PATCH: &str = "application/json-patch+json";
const YAML: &str = "application/yaml";

fn each<T>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(make).collect()
}

fn joined(count: usize, make: impl Fn(usize) -> String) -> String {
    each(count, make).join(",")
}

fn pod(call: usize, spec: &Value) -> Request {
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{call}")}, "spec": spec});
    post(PODS, object)
}

pub(crate) fn requests() -> Vec<(&'static str, MakeRequest)> {
    vec![
        ("distinct repeated keys", |n, _| {
            post(
                REVIEW,
                format!("{{{}}}", joined(n, |i| format!(r#""k{i}":1,"k{i}":2"#))),
            )
        }),
        ("one repeated key", |n, _| {
            post(REVIEW, format!("{{{}}}", joined(n, |_| r#""k":1"#.to_owned())))
        }),
        ("repeated keys below a long one", |n, _| {
            let inner = joined(n, |i| format!(r#""k{i}":1,"k{i}":2"#));
            post(REVIEW, format!(r#"{{"{}":{{{inner}}}}}"#, "x".repeat(8 * n)))
        }),
        ("one repeated key below a long one", |n, _| {
            let inner = joined(n, |_| r#""k":1"#.to_owned());
            post(REVIEW, format!(r#"{{"{}":{{{inner}}}}}"#, "x".repeat(8 * n)))
        }),
        ("unknown fields below a long one", |n, call| {
            let inner = joined(n, |i| format!(r#"{{"k{i}":1}}"#));
            post(
                PODS,
                format!(
                    r#"{{"metadata":{{"name":"u{call}"}},"spec":{{"containers":[{inner}]}},"{}":1}}"#,
                    "x".repeat(8 * n)
                ),
            )
        }),
        ("strict unknown fields", |n, _| {
            let fields: serde_json::Map<_, _> =
                each(n, |i| (format!("k{i}"), json!(1))).into_iter().collect();
            post(&format!("{MAPS}?fieldValidation=Strict"), Value::Object(fields))
        }),
        ("repeated keys in YAML", |n, _| Request {
            kind: YAML,
            ..post(REVIEW, each(n, |i| format!("k{i}: 1\nk{i}: 2\n")).concat())
        }),
        ("a list in YAML", |n, call| Request {
            kind: YAML,
            ..post(
                MAPS,
                format!(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y{call}\ndata:\n{}",
                    each(n, |i| format!("  k{i}: \"v\"\n")).concat()
                ),
            )
        }),
        ("unclosed managed fields", |n, _| Request {
            method: "PUT",
            ..post(
                EXISTING_MAP,
                r#"{"metadata":{"managedFields":["#.to_owned() + &r#"{"managedFields":["#.repeat(n),
            )
        }),
        ("managed fields in strings", |n, _| {
            let text = json!({"metadata": {"name": "kept"}, "data": {"a": r#""managedFields":["#.repeat(n)}});
            Request {
                method: "PUT",
                ..post(EXISTING_MAP, text)
            }
        }),
        ("escaped managed fields", |n, _| Request {
            method: "PUT",
            ..post(
                EXISTING_MAP,
                format!(
                    r#"{{"metadata":{{"name":"kept"}},{}}}"#,
                    joined(n, |i| format!(r#""{i}\"managedFields":[1]"#))
                ),
            )
        }),
        ("many managers", |n, _| {
            let managers = each(n, |i| {
                json!({"manager": format!("m{i}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                       "time": "2024-01-01T00:00:00Z", "fieldsV1": {"f:data": {format!("f:k{i}"): {}}}})
            });
            Request {
                method: "PUT",
                ..post(
                    EXISTING_MAP,
                    json!({"metadata": {"name": "kept", "managedFields": managers}}),
                )
            }
        }),
        ("operations that append", |n, _| {
            let operations = each(
                n,
                |i| json!({"op": "add", "path": format!("/data/k{i}"), "value": "v"}),
            );
            patch(JSON_PATCH, EXISTING_MAP, &operations.into())
        }),
        ("operations that move", |n, _| {
            let mut operations = vec![json!({"op": "add", "path": "/data", "value": {"k0": "v"}})];
            operations.extend(each(
                n,
                |i| json!({"op": "move", "from": format!("/data/k{i}"), "path": format!("/data/k{}", i + 1)}),
            ));
            patch(JSON_PATCH, EXISTING_MAP, &operations.into())
        }),
        ("operations that copy", |n, _| {
            let operations = each(
                n,
                |i| json!({"op": "copy", "from": "/metadata/name", "path": format!("/data/k{i}")}),
            );
            patch(JSON_PATCH, EXISTING_MAP, &operations.into())
        }),
        ("a label selector with many terms", |n, _| {
            get(format!(
                "{MAPS}?labelSelector={}",
                joined(n, |i| format!("k{i}!=v"))
            ))
        }),
        ("a label selector with many values", |n, _| {
            get(format!(
                "{MAPS}?labelSelector=k%20in%20({})",
                joined(n, |i| format!("v{i}"))
            ))
        }),
        ("a field selector with many terms", |n, _| {
            get(format!(
                "{MAPS}?fieldSelector={}",
                joined(n, |i| format!("metadata.name!=v{i}"))
            ))
        }),
        ("many parameters", |n, _| {
            get(format!("{MAPS}?{}", each(n, |i| format!("k{i}=v")).join("&")))
        }),
        ("one parameter many times", |n, _| {
            get(format!("{MAPS}?{}", each(n, |_| "limit=1".to_owned()).join("&")))
        }),
        ("a long token to go on with", |n, _| {
            get(format!("{MAPS}?limit=1&continue={}", "QUFB".repeat(n)))
        }),
        ("a long path", |n, _| {
            get(format!("{MAPS}/{}", each(n, |_| "a".to_owned()).join("/")))
        }),
        ("many groups", |n, _| Request {
            headers: [("impersonate-user".to_owned(), "a".to_owned())]
                .into_iter()
                .chain(each(n, |i| ("impersonate-group".to_owned(), format!("g{i}"))))
                .collect(),
            ..get(MAPS.to_owned())
        }),
        ("many extras", |n, _| Request {
            headers: [("impersonate-user".to_owned(), "a".to_owned())]
                .into_iter()
                .chain(each(n, |i| (format!("impersonate-extra-k{i}"), "v".to_owned())))
                .collect(),
            ..get(MAPS.to_owned())
        }),
        ("many accepted types", |n, _| Request {
            headers: vec![("accept".to_owned(), joined(n, |i| format!("application/x{i}")))],
            ..get(MAPS.to_owned())
        }),
        ("volumes and mounts", |n, call| {
            let volumes = each(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}}));
            let mounts = each(
                n,
                |i| json!({"name": format!("v{}", n - 1 - i), "mountPath": format!("/m{i}")}),
            );
            pod(
                call,
                &json!({"volumes": volumes, "containers": [{"name": "a", "image": "a", "volumeMounts": mounts}]}),
            )
        }),
        ("containers with mounts of many volumes", |n, call| {
            let volumes = each(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}}));
            let containers = each(
                n,
                |i| json!({"name": format!("c{i}"), "image": "a", "volumeMounts": [{"name": format!("v{}", n - 1 - i), "mountPath": "/m"}]}),
            );
            pod(call, &json!({"volumes": volumes, "containers": containers}))
        }),
        ("ports of many containers", |n, call| {
            let containers = each(
                n,
                |i| json!({"name": format!("c{i}"), "image": "a", "ports": [{"containerPort": i + 1, "hostPort": i + 1}]}),
            );
            pod(call, &json!({"containers": containers}))
        }),
        ("claims of many containers", |n, call| {
            let claims = each(n, |i| json!({"name": format!("r{i}"), "resourceClaimName": "a"}));
            let containers = each(
                n,
                |i| json!({"name": format!("c{i}"), "image": "a", "resources": {"claims": [{"name": format!("r{}", n - 1 - i)}]}}),
            );
            pod(call, &json!({"resourceClaims": claims, "containers": containers}))
        }),
        ("files of many volumes", |n, call| {
            let volumes = each(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}}));
            let variables = each(n, |i| {
                let file = json!({"volumeName": format!("v{}", n - 1 - i), "path": "a", "key": "k"});
                json!({"name": format!("E{i}"), "valueFrom": {"fileKeyRef": file}})
            });
            pod(
                call,
                &json!({"volumes": volumes, "containers": [{"name": "a", "image": "a", "env": variables}]}),
            )
        }),
        ("profiles of many containers", |n, call| {
            let containers = each(n, |i| json!({"name": format!("c{i}"), "image": "a"}));
            let profiles: serde_json::Map<_, _> = each(n, |i| {
                (
                    format!("container.apparmor.security.beta.kubernetes.io/c{}", n - 1 - i),
                    json!("unconfined"),
                )
            })
            .into_iter()
            .collect();
            post(
                PODS,
                json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{call}"), "annotations": profiles},
                    "spec": {"containers": containers},
                }),
            )
        }),
        ("amounts of a pod and of its containers", |n, call| {
            let amounts: serde_json::Map<_, _> = each(n, |i| (format!("hugepages-{}Mi", i + 1), json!("1")))
                .into_iter()
                .collect();
            let containers = each(
                n,
                |i| json!({"name": format!("c{i}"), "image": "a", "resources": {"requests": {"cpu": "1"}}}),
            );
            pod(
                call,
                &json!({"containers": containers, "resources": {"requests": amounts, "limits": amounts}}),
            )
        }),
        ("exit codes of many containers", |n, call| {
            let containers = each(n, |i| json!({"name": format!("c{i}"), "image": "a"}));
            let rules = each(
                n,
                |i| json!({"action": "Ignore", "onExitCodes": {"containerName": format!("c{}", n - 1 - i), "operator": "In", "values": [1]}}),
            );
            post(
                "/apis/batch/v1/namespaces/default/jobs",
                json!({
                    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("j{call}")},
                    "spec": {"podFailurePolicy": {"rules": rules}, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
                }),
            )
        }),
        ("claims and volumes of a stateful set", |n, call| {
            let claims = each(
                n,
                |i| json!({"metadata": {"name": format!("v{i}")}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}),
            );
            let volumes = each(n, |i| json!({"name": format!("v{}", n - 1 - i), "emptyDir": {}}));
            let mounts = each(
                n,
                |i| json!({"name": format!("v{}", n - 1 - i), "mountPath": format!("/m{i}")}),
            );
            post(
                "/apis/apps/v1/namespaces/default/statefulsets",
                json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": format!("s{call}")},
                    "spec": {
                        "selector": {"matchLabels": {"a": "a"}}, "serviceName": "a", "volumeClaimTemplates": claims,
                        "template": {"metadata": {"labels": {"a": "a"}}, "spec": {"volumes": volumes, "containers": [{"name": "a", "image": "a", "volumeMounts": mounts}]}},
                    },
                }),
            )
        }),
        ("node ports", |n, call| {
            let ports = each(n, |i| json!({"name": format!("p{i}"), "port": i + 1}));
            post(
                "/api/v1/namespaces/default/services?dryRun=All",
                json!({
                    "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{call}")},
                    "spec": {"type": "NodePort", "ports": ports},
                }),
            )
        }),
        ("scopes and resources of a quota", |n, call| {
            let hard: serde_json::Map<_, _> = each(n, |i| (format!("hugepages-{}Mi", i + 1), json!("1")))
                .into_iter()
                .collect();
            let terms = each(n, |_| json!({"scopeName": "BestEffort", "operator": "Exists"}));
            post(
                "/api/v1/namespaces/default/resourcequotas",
                json!({
                    "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": format!("q{call}")},
                    "spec": {"hard": hard, "scopes": each(n, |_| "BestEffort"), "scopeSelector": {"matchExpressions": terms}},
                }),
            )
        }),
        ("a role that is multiplied out", |n, call| {
            let texts = each(n, |i| format!("x{i}"));
            let rule =
                json!({"verbs": texts, "apiGroups": texts, "resources": texts, "resourceNames": texts});
            post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": format!("r{call}")}, "rules": [rule],
                }),
            )
        }),
        ("a role of many rules", |n, call| {
            let rules = each(
                n,
                |i| json!({"verbs": ["get"], "apiGroups": [format!("x{i}")], "resources": ["pods"]}),
            );
            post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": format!("m{call}")}, "rules": rules,
                }),
            )
        }),
        ("many groups in a review", |n, _| {
            post(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                json!({
                    "spec": {"user": "a", "groups": each(n, |i| format!("g{i}")), "resourceAttributes": {"verb": "get", "resource": "pods"}},
                }),
            )
        }),
    ]
}

/// Creates what the requests need.
pub(crate) async fn prepare(lab: &Harness<'_>) {
    let labels: serde_json::Map<_, _> = each(8, |i| (format!("k{i}"), json!("v"))).into_iter().collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "labels": labels}, "data": {"a": "a"}});
    let (code, _) = lab.send(post(MAPS, object)).await;
    assert_eq!(code, 201);
}

/// What needs several requests, of which the last ones are measured.
pub(crate) struct Sequence {
    pub(crate) what: &'static str,
    pub(crate) prepare: fn(usize, usize) -> Vec<Request>,
    pub(crate) measured: fn(usize, usize) -> Vec<Request>,
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

fn role_binding(name: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}, "subjects": subjects,
    })
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn role(name: &str) -> Request {
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    post(
        &format!("{RBAC}/roles"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": [rule],
        }),
    )
}

fn update_binding(name: &str, binding: &Value) -> Request {
    Request {
        method: "PUT",
        ..post(&format!("{RBAC}/rolebindings/{name}"), binding)
    }
}

/// The policy follows the bindings when the next request is authorized, so every sequence ends with a small one.
pub(crate) fn sequences() -> Vec<Sequence> {
    vec![
        Sequence {
            what: "an update of one of two bindings with one subject many times",
            prepare: |n, call| {
                let subjects = each(n, |_| user("a"));
                let create = |name: String| {
                    let path = format!("{RBAC}/rolebindings");
                    post(&path, role_binding(&name, &format!("t{call}"), &subjects))
                };
                let mut requests = vec![role(&format!("t{call}"))];
                requests.extend(["x", "y"].map(|name| create(format!("{name}{call}"))));
                requests
            },
            measured: |n, call| {
                let name = format!("x{call}");
                let mut binding = role_binding(&name, &format!("t{call}"), &each(n, |_| user("a")));
                binding["metadata"]["labels"] = json!({"touched": "yes"});
                vec![update_binding(&name, &binding), get(EXISTING_MAP.to_owned())]
            },
        },
        Sequence {
            what: "updates of many bindings with the same subject",
            prepare: |n, call| {
                let mut requests = vec![role(&format!("t{call}"))];
                requests.extend(each(n, |i| {
                    let binding = role_binding(&format!("m{call}-{i}"), &format!("t{call}"), &[user("b")]);
                    post(&format!("{RBAC}/rolebindings"), binding)
                }));
                requests
            },
            measured: |n, call| {
                let mut requests = each(n, |i| {
                    let name = format!("m{call}-{i}");
                    let mut binding = role_binding(&name, &format!("t{call}"), &[user("b")]);
                    binding["metadata"]["labels"] = json!({"touched": "yes"});
                    update_binding(&name, &binding)
                });
                requests.push(get(EXISTING_MAP.to_owned()));
                requests
            },
        },
        Sequence {
            what: "many bindings to a role of many rules",
            prepare: |n, call| {
                let rules = each(
                    n,
                    |i| json!({"verbs": ["get"], "apiGroups": [format!("x{i}")], "resources": ["pods"]}),
                );
                let name = format!("long{call}");
                let mut requests = vec![post(
                    &format!("{RBAC}/roles"),
                    json!({
                        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules,
                    }),
                )];
                requests.extend(each(n, |i| {
                    let subjects = [user(&format!("bound{call}"))];
                    let binding = role_binding(&format!("long{call}-{i}"), &name, &subjects);
                    post(&format!("{RBAC}/rolebindings"), binding)
                }));
                // The policy has followed before the measurement.
                requests.push(get(EXISTING_MAP.to_owned()));
                requests
            },
            measured: |_, call| {
                let review = json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
                });
                let requests = [
                    get(MAPS.to_owned()),
                    post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review),
                ];
                let as_user = |request| Request {
                    headers: vec![("impersonate-user".to_owned(), format!("bound{call}"))],
                    ..request
                };
                requests.map(as_user).into()
            },
        },
        Sequence {
            what: "deletions of custom resources beside many definitions",
            prepare: |n, call| {
                let mut requests = each(n, |i| {
                    let (plural, kind) = (format!("d{call}x{i}s"), format!("D{call}x{i}"));
                    post(CRDS, custom_resources::definition(&plural, &kind))
                });
                requests.extend(each(n, |i| {
                    let kind = format!("D{call}x0");
                    post(
                        &format!("/apis/x0.example.com/v1/namespaces/default/d{call}x0s"),
                        json!({"apiVersion": "x0.example.com/v1", "kind": kind, "metadata": {"name": format!("o{i}")}}),
                    )
                }));
                requests
            },
            measured: |n, call| {
                each(n, |i| Request {
                    method: "DELETE",
                    ..get(format!(
                        "/apis/x0.example.com/v1/namespaces/default/d{call}x0s/o{i}"
                    ))
                })
            },
        },
        Sequence {
            what: "services beside many others",
            prepare: |n, call| {
                each(n, |i| {
                    let spec = json!({"clusterIP": "None", "ports": [{"port": 80}]});
                    post(
                        "/api/v1/namespaces/default/services",
                        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("h{call}-{i}")}, "spec": spec}),
                    )
                })
            },
            measured: |n, call| {
                each(n, |i| {
                    let spec = json!({"type": "ExternalName", "externalName": "example.com"});
                    post(
                        "/api/v1/namespaces/default/services",
                        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("e{call}-{i}")}, "spec": spec}),
                    )
                })
            },
        },
        Sequence {
            what: "long selectors of lists and watches over many objects",
            prepare: |n, call| {
                each(n, |i| {
                    let labels = json!({"present": format!("v{i}"), "number": format!("{i}")});
                    post(
                        MAPS,
                        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("l{call}-{i}"), "labels": labels}}),
                    )
                })
            },
            measured: |n, _| {
                // No object matches, but only because of the last requirement: the answers do not get longer.
                let terms = [
                    joined(n, |i| format!("!absent{i}")),
                    joined(n, |i| format!("present!=x{i}")),
                    format!("present%20notin%20({})", joined(n, |i| format!("x{i}"))),
                    format!("present%20in%20({})", joined(4 * n, |i| format!("v{i}"))),
                    joined(n, |_| "present".to_owned()),
                    joined(n, |i| format!("number%3C{}", 1_000_000 + i)),
                ];
                let mut selectors: Vec<_> = terms
                    .into_iter()
                    .map(|terms| format!("labelSelector={terms},zzz"))
                    .collect();
                let names = joined(n, |i| format!("metadata.name!=x{i}"));
                selectors.push(format!("fieldSelector={names},metadata.namespace=other"));
                let lists = selectors.iter().map(|selector| get(format!("{MAPS}?{selector}")));
                let watches = selectors
                    .iter()
                    .map(|selector| get(format!("{MAPS}?watch=1&timeoutSeconds=1&{selector}")));
                lists.chain(watches).collect()
            },
        },
        Sequence {
            what: "a refusal with many missing roles",
            prepare: |n, call| {
                let mut requests = Vec::new();
                for i in 0..n {
                    let name = format!("g{call}-{i}");
                    let subjects = [user(&format!("refused{call}"))];
                    requests.push(role(&name));
                    requests.push(post(
                        &format!("{RBAC}/rolebindings"),
                        role_binding(&name, &name, &subjects),
                    ));
                    requests.push(Request {
                        method: "DELETE",
                        ..get(format!("{RBAC}/roles/{name}"))
                    });
                }
                // The policy has followed before the measurement.
                requests.push(get(EXISTING_MAP.to_owned()));
                requests
            },
            measured: |_, call| {
                vec![Request {
                    headers: vec![("impersonate-user".to_owned(), format!("refused{call}"))],
                    ..get(MAPS.to_owned())
                }]
            },
        },
        Sequence {
            what: "a write that many policies match",
            prepare: |n, call| {
                let mut requests = Vec::new();
                for i in 0..n {
                    let name = format!("p{call}-{i}");
                    requests.push(post(
                        &format!("{ADMISSION}/validatingadmissionpolicies"),
                        policy(&name),
                    ));
                    let spec = json!({"policyName": name, "validationActions": ["Deny"]});
                    let binding = json!({
                        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                        "metadata": {"name": name}, "spec": spec,
                    });
                    requests.push(post(
                        &format!("{ADMISSION}/validatingadmissionpolicybindings"),
                        binding,
                    ));
                }
                // They are compiled before the measurement.
                requests.push(map(&format!("before{call}")));
                requests
            },
            measured: |n, call| {
                let mut requests = vec![map(&format!("after{call}"))];
                for i in 0..n {
                    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
                        requests.push(Request {
                            method: "DELETE",
                            ..get(format!("{ADMISSION}/{plural}/p{call}-{i}"))
                        });
                    }
                }
                requests.push(map(&format!("without{call}")));
                requests
            },
        },
    ]
}

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy that every new ConfigMap passes.
fn policy(name: &str) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'nothing'"}],
    }})
}

fn map(name: &str) -> Request {
    post(
        MAPS,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
    )
}
