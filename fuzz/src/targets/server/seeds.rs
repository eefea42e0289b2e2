//! Valid and nearly valid requests, from the recordings of a real server and the scenarios of the conformance suite.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{request::Draft, test_server::TestServer};
use crate::{invariants::MAX_DEPTH, mutate::protobuf::Descriptors};

/// Name of the object in the requests.
pub(super) const NAME: &str = "fuzz";

const JSON: &str = "application/json";

/// API group of the scenarios' own kinds.
pub(super) const GROUP: &str = "fuzz.example.com";

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A valid object for each collection.
pub(super) type BaseObjects = BTreeMap<String, Value>;

/// A recorded case of `crates/apiserver/tests/recorded`.
#[derive(Deserialize)]
struct Case {
    collection: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    code: u16,
    post: Option<Value>,
    patch: Option<Value>,
    #[serde(default, rename = "type")]
    content_type: String,
    /// Edits of the stored object.
    #[serde(default)]
    put: Vec<(String, Value)>,
    #[serde(default)]
    part: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cases() -> Vec<Case> {
    let folder = repository().join("crates/apiserver/tests/recorded");
    let mut files = Vec::new();
    for folder in [folder.clone(), folder.join("rules")] {
        let entries = fs::read_dir(&folder).expect("it is in the repository");
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = fs::read(file).expect("it is in the repository");
            serde_json::from_slice::<Vec<Case>>(&text).expect("it has this form")
        })
        .collect()
}

fn named(mut object: Value) -> Value {
    if object["metadata"].is_object() {
        object["metadata"]["name"] = NAME.into();
    }
    object
}

/// Returns the first accepted object of each collection.
pub(super) fn base_objects() -> BaseObjects {
    let mut base_objects = BaseObjects::new();
    for case in cases() {
        for step in &case.steps {
            if let (201, Some(object @ Value::Object(_))) = (step.code, &step.post)
                && !case.collection.contains("kube-")
            {
                base_objects
                    .entry(case.collection.clone())
                    .or_insert_with(|| named(object.clone()));
            }
        }
    }
    base_objects.insert(ANYTHINGS.to_owned(), anything());
    base_objects
}

/// Collection of a kind that preserves unknown fields.
const ANYTHINGS: &str = "/apis/any.example.org/v1/namespaces/default/anythings";

fn anything() -> Value {
    json!({
        "apiVersion": "any.example.org/v1", "kind": "Anything", "metadata": {"name": NAME, "labels": {"a": "b"}},
        "spec": {"a": {"b": [1, {"c": "d"}, null, 1.5]}, "list": [{"name": "x"}, {"name": "y"}]}, "other": [[]],
    })
}

/// Returns the bodies of recorded creates, without duplicates.
fn posts() -> Vec<(String, Value)> {
    let mut seen = BTreeSet::new();
    let mut posts = Vec::new();
    for case in cases() {
        for step in case.steps {
            if let Some(object @ Value::Object(_)) = step.post {
                let object = named(object);
                if seen.insert((case.collection.clone(), object.to_string())) {
                    posts.push((case.collection.clone(), object));
                }
            }
        }
    }
    // One in eight: recorded objects are of built-in kinds, which drop unknown fields.
    let every_eighth = posts.len() / 8;
    posts.extend(vec![(ANYTHINGS.to_owned(), anything()); every_eighth]);
    posts
}

/// Creates and updates in JSON, and requests whose bodies are not objects.
pub(super) fn json(_: &TestServer, base_objects: &BaseObjects) -> Vec<Draft> {
    let posts = posts().into_iter();
    let mut drafts: Vec<Draft> = posts
        .map(|(collection, object)| Draft::new("POST", &collection, JSON, object.to_string()))
        .collect();
    for (collection, object) in base_objects {
        let path = format!("{collection}/{NAME}");
        for part in ["", "/status"] {
            drafts.push(Draft::new(
                "PUT",
                &format!("{path}{part}"),
                JSON,
                object.to_string(),
            ));
        }
    }
    for (definition, _) in definitions() {
        drafts.push(Draft::new("POST", DEFINITIONS, JSON, definition.to_string()));
    }
    drafts.extend(others());
    // Around the depth from which the server needs a larger stack.
    for levels in [40, 80, 110, 116, 118, 120, 122, 124, 126, 130] {
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let body = anything().to_string().replace("null", &deep);
        drafts.extend(vec![Draft::new("POST", ANYTHINGS, JSON, body); 4]);
    }
    drafts
}

/// Reviews, subresources and deletes.
fn others() -> Vec<Draft> {
    let reviews = "/apis/authorization.k8s.io/v1";
    let web = "/apis/apps/v1/namespaces/default/deployments/fuzz";
    let pod = "/api/v1/namespaces/default/pods/fuzz";
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let access = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}});
    let of_user = json!({"user": "a", "groups": ["g"], "extra": {"k": ["v"]}, "nonResourceAttributes": {"verb": "get", "path": "/x"}});
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5, "preconditions": {"uid": "u"}, "dryRun": ["All"]});
    let bodies = [
        (
            "POST",
            format!("{reviews}/selfsubjectaccessreviews"),
            json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": access}),
        ),
        (
            "POST",
            format!("{reviews}/subjectaccessreviews"),
            json!({"spec": of_user}),
        ),
        (
            "POST",
            format!("{reviews}/selfsubjectrulesreviews"),
            json!({"spec": {"namespace": "default"}}),
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
            json!({"spec": {"token": "a.b.c", "audiences": ["x"]}}),
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(),
            json!({}),
        ),
        (
            "PUT",
            format!("{web}/scale"),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": NAME, "namespace": "default"}, "spec": {"replicas": 3}}),
        ),
        (
            "POST",
            format!("{pod}/eviction"),
            json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": NAME}, "deleteOptions": {"gracePeriodSeconds": 0}}),
        ),
        (
            "POST",
            format!("{pod}/binding"),
            json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": NAME}, "target": {"kind": "Node", "name": "node"}}),
        ),
        (
            "POST",
            account.to_owned(),
            json!({"spec": {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "name": "p"}}}),
        ),
        ("DELETE", web.to_owned(), options.clone()),
        ("DELETE", "/api/v1/namespaces/default/pods".to_owned(), options),
    ];
    let bodies = bodies.into_iter();
    bodies
        .map(|(method, target, body)| Draft::new(method, &target, JSON, body.to_string()))
        .collect()
}

/// The JSON seeds in YAML.
pub(super) fn yaml(server: &TestServer, base_objects: &BaseObjects) -> Vec<Draft> {
    let mut drafts = json(server, base_objects);
    drafts.retain_mut(|draft| {
        let Some(object) = tree(draft) else {
            return false;
        };
        draft.body = serde_yaml_ng::to_string(&object).expect("a tree").into_bytes();
        draft.set_header("content-type", b"application/yaml".to_vec());
        true
    });
    drafts
}

/// Parses the body; `None` if it nests too deep.
fn tree(draft: &Draft) -> Option<Value> {
    serde_json::from_slice(&draft.body).ok()
}

/// The JSON seeds in protobuf, as client-go sends them.
pub(super) fn protobuf(server: &TestServer, base_objects: &BaseObjects) -> Vec<Draft> {
    let descriptors = Descriptors::shipped();
    let kinds = kinds(server);
    let mut drafts = json(server, base_objects);
    drafts.retain_mut(|draft| {
        let Some(object) = tree(draft) else {
            return false;
        };
        let resource = super::writes::ResourcePath::of(draft.path()).expect("a path of the API");
        let mut api_version = version_of(resource.collection);
        let mut kind = kinds.get(resource.collection).cloned().unwrap_or_default();
        if let (Some(own_version), Some(own_kind)) = (object["apiVersion"].as_str(), object["kind"].as_str())
        {
            (api_version, kind) = (own_version.to_owned(), own_kind.to_owned());
        }
        draft.set_header("content-type", b"application/vnd.kubernetes.protobuf".to_vec());
        let body = descriptors.body(&api_version, &kind, &object);
        body.map(|body| draft.body = body).is_some()
    });
    drafts
}

/// Returns `apps/v1` for `/apis/apps/v1/…`.
fn version_of(collection: &str) -> String {
    let parts: Vec<&str> = collection.split('/').collect();
    match parts[..] {
        [_, "api", version, ..] => version.to_owned(),
        [_, "apis", group, version, ..] => format!("{group}/{version}"),
        _ => String::new(),
    }
}

/// Returns the kind of each collection in the namespace `default`, from discovery.
pub(super) fn kinds(server: &TestServer) -> BTreeMap<String, String> {
    let mut roots = vec!["/api/v1".to_owned()];
    let groups = server.get("/apis", JSON).json();
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            roots.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap_or_default()
            ));
        }
    }
    let mut kinds = BTreeMap::new();
    for root in roots {
        let resources = server.get(&root, JSON).json();
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let plural = resource["name"].as_str().unwrap_or_default();
            let kind = resource["kind"].as_str().unwrap_or_default().to_owned();
            if resource["namespaced"] == true {
                kinds.insert(format!("{root}/namespaces/default/{plural}"), kind.clone());
            }
            kinds.insert(format!("{root}/{plural}"), kind);
        }
    }
    kinds
}

/// Recorded patches of one type, and recorded edits of objects converted to that type.
fn patches(content_type: &str, change: fn(&[(String, Value)]) -> Value) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for case in cases() {
        for step in case.steps {
            let target = match step.part.as_str() {
                "" => format!("{}/{NAME}", case.collection),
                part => format!("{}/{NAME}/{part}", case.collection),
            };
            let full = match step.content_type.as_str() {
                "json" => "application/json-patch+json".to_owned(),
                "merge" => "application/merge-patch+json".to_owned(),
                "strategic" => "application/strategic-merge-patch+json".to_owned(),
                other => other.to_owned(),
            };
            match step.patch {
                Some(patch) if full == content_type => {
                    drafts.push(Draft::new("PATCH", &target, content_type, patch.to_string()));
                }
                _ if !step.put.is_empty() => {
                    let patch = change(&step.put);
                    drafts.push(Draft::new("PATCH", &target, content_type, patch.to_string()));
                }
                _ => {}
            }
        }
    }
    let target = format!("{ANYTHINGS}/{NAME}");
    let anything = change(&[
        ("spec/a/new".to_owned(), json!({"x": [1]})),
        ("metadata/annotations".to_owned(), json!({"k": "v"})),
    ]);
    drafts.extend(vec![
        Draft::new(
            "PATCH",
            &target,
            content_type,
            anything.to_string()
        );
        drafts.len() / 8
    ]);
    drafts
}

pub(super) fn json_patch(_: &TestServer, _: &BaseObjects) -> Vec<Draft> {
    let mut drafts = patches("application/json-patch+json", |changes| {
        let changes = changes.iter().map(|(path, value)| {
            let path = format!("/{}", path.trim_start_matches('/'));
            json!({"op": "add", "path": path, "value": value})
        });
        changes.collect()
    });
    let extra = [
        json!([{"op": "move", "from": "/spec", "path": "/spec/a"}, {"op": "copy", "from": "/metadata", "path": "/status"}]),
        json!([{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}, {"op": "remove", "path": "/metadata/labels"}]),
        json!([{"op": "test", "path": "", "value": 1}, {"op": "replace", "path": "", "value": []}]),
        json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "n", "image": "i"}}]),
    ];
    let into_itself = json!([
        {"op": "copy", "from": "/spec", "path": "/spec/a/copy"},
        {"op": "move", "from": "/spec/a", "path": "/spec/list/0"},
        {"op": "test", "path": "/metadata/name", "value": NAME},
        {"op": "replace", "path": "/other", "value": {"x": []}},
    ]);
    let target = format!("{ANYTHINGS}/{NAME}");
    let itself = Draft::new(
        "PATCH",
        &target,
        "application/json-patch+json",
        into_itself.to_string(),
    );
    drafts.extend(vec![itself; drafts.len() / 8]);
    let deeper = json!({"op": "copy", "from": "/spec", "path": "/spec/a/copy"});
    let deeper = Value::from(vec![deeper; MAX_DEPTH.min(1_000) / 3]);
    let deeper = Draft::new(
        "PATCH",
        &target,
        "application/json-patch+json",
        deeper.to_string(),
    );
    drafts.extend(vec![deeper; 30]);
    for patch in extra {
        let target = format!("/apis/apps/v1/namespaces/default/deployments/{NAME}");
        drafts.push(Draft::new(
            "PATCH",
            &target,
            "application/json-patch+json",
            patch.to_string(),
        ));
    }
    drafts
}

/// Converts edits to a merge patch, without paths into lists.
fn as_object(changes: &[(String, Value)]) -> Value {
    let mut patch = json!({});
    for (path, value) in changes {
        let mut node = &mut patch;
        for key in path.trim_start_matches('/').split('/') {
            if !node.is_object() {
                *node = json!({});
            }
            node = &mut node[key];
        }
        *node = value.clone();
    }
    patch
}

pub(super) fn merge_patch(_: &TestServer, _: &BaseObjects) -> Vec<Draft> {
    patches("application/merge-patch+json", as_object)
}

pub(super) fn strategic_merge_patch(_: &TestServer, _: &BaseObjects) -> Vec<Draft> {
    let mut drafts = patches("application/strategic-merge-patch+json", as_object);
    let extra = [
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j", "$patch": "merge"}], "$setElementOrder/containers": [{"name": "c"}], "volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}]}}}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/b"], "$setElementOrder/finalizers": ["a.io/b"], "finalizers": ["a.io/b"]}}),
    ];
    for patch in extra {
        let target = format!("/apis/apps/v1/namespaces/default/deployments/{NAME}");
        drafts.push(Draft::new(
            "PATCH",
            &target,
            "application/strategic-merge-patch+json",
            patch.to_string(),
        ));
    }
    drafts
}

/// Server-side apply of new and of existing objects.
pub(super) fn apply(server: &TestServer, _: &BaseObjects) -> Vec<Draft> {
    let kinds = kinds(server);
    let mut drafts = Vec::new();
    for (collection, mut object) in posts() {
        object["apiVersion"] = version_of(&collection).into();
        object["kind"] = kinds.get(&collection).cloned().unwrap_or_default().into();
        let body = serde_yaml_ng::to_string(&object).unwrap_or_default();
        let target = format!("{collection}/{NAME}?fieldManager=fuzz&force=true");
        drafts.push(Draft::new("PATCH", &target, "application/apply-patch+yaml", body));
    }
    drafts
}

/// Updates with the managed fields that the server itself wrote.
pub(super) fn managed_fields(server: &TestServer, base_objects: &BaseObjects) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (collection, object) in base_objects {
        let dry = format!("{collection}?dryRun=All&fieldManager=someone");
        let mut created = server.send("POST", &dry, &[], object.to_string().into()).json();
        let Some(metadata) = created["metadata"].as_object_mut() else {
            continue;
        };
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
        if !metadata.contains_key("managedFields") {
            continue;
        }
        let fields = metadata["managedFields"].clone();
        let target = format!("{collection}/{NAME}");
        drafts.push(Draft::new("PUT", &target, JSON, created.to_string()));
        let patch = json!({"metadata": {"managedFields": fields}});
        drafts.push(Draft::new(
            "PATCH",
            &target,
            "application/merge-patch+json",
            patch.to_string(),
        ));
        drafts.push(Draft::new("POST", collection, JSON, created.to_string()));
    }
    drafts
}

/// The conformance scenarios whose names start so.
fn scenarios(prefix: &str) -> Vec<Value> {
    let folder = repository().join("conformance/scenarios");
    let entries = fs::read_dir(folder).expect("it is in the repository");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    });
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let text = text.replace("{{group}}", GROUP).replace("{{ns}}", "default");
            serde_yaml_ng::from_str(&text).unwrap_or_default()
        })
        .collect()
}

/// The responses of the scenarios' webhooks, without duplicates: whether it is one about a conversion, and the body.
pub(super) fn webhook_replies() -> BTreeSet<(bool, String)> {
    let mut replies = BTreeSet::new();
    for scenario in scenarios("")
        .iter()
        .filter(|scenario| scenario["webhooks"].is_object())
    {
        let steps = scenario["steps"].as_array().into_iter().flatten();
        let endpoints = steps
            .map(|step| &step["webhooks"])
            .chain([&scenario["webhooks"]])
            .filter_map(Value::as_object)
            .flat_map(Map::values);
        for endpoint in endpoints {
            match endpoint {
                Value::Array(behaviours) => replies.extend(behaviours.iter().map(reply)),
                behaviour => drop(replies.insert(reply(behaviour))),
            }
        }
    }
    replies
}

/// The response of a behaviour, whose format `conformance/README.md` describes.
fn reply(behaviour: &Value) -> (bool, String) {
    let converts = behaviour["convert"].is_object();
    if let Some(body) = behaviour.get("body") {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        return (
            text.contains("ConversionReview") || text.contains("convertedObjects"),
            text,
        );
    }
    let (mut response, review) = if converts {
        (
            json!({"uid": "{{uid}}", "result": {"status": "Success"}, "convertedObjects": "{{objects}}"}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}),
        )
    } else {
        (
            json!({"uid": "{{uid}}", "allowed": true}),
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
        )
    };
    if let Some(patch) = behaviour.get("patch").filter(|_| !converts) {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = patch.clone();
    }
    for (key, value) in behaviour["respond"].as_object().into_iter().flatten() {
        response[key] = value.clone();
    }
    let mut review = review;
    review["response"] = response;
    (converts, review.to_string())
}

/// A policy of a scenario, its binding, and the requests about which it decides.
pub(super) struct PolicyCase {
    /// `validatingadmissionpolicies` or `mutatingadmissionpolicies`.
    pub(super) plural: String,
    pub(super) policy: Value,
    pub(super) binding: Value,
    /// Objects that exist before the policy, each with its collection.
    pub(super) others: Vec<(String, Value)>,
    pub(super) collection: String,
    pub(super) object: Value,
}

/// The policies of the scenarios, each with every object that its scenario creates.
pub(super) fn policies() -> Vec<PolicyCase> {
    const GROUP_PATH: &str = "/apis/admissionregistration.k8s.io/v1/";
    let mut cases = Vec::new();
    for scenario in scenarios("admission-policy-")
        .into_iter()
        .chain(scenarios("admission-mutation-"))
    {
        let (mut policies, mut bindings, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        for step in scenario["steps"].as_array().into_iter().flatten() {
            let (Some(path), Some(body)) = (step["post"].as_str(), step.get("body")) else {
                continue;
            };
            let mut path = path.to_owned();
            for (name, value) in scenario["let"].as_object().into_iter().flatten() {
                path = path.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default());
            }
            let path = path.split('?').next().unwrap_or_default().to_owned();
            match path.strip_prefix(GROUP_PATH) {
                Some(plural) if plural.ends_with("policies") => {
                    policies.push((plural.to_owned(), body.clone()));
                }
                Some(plural) if plural.ends_with("bindings") => bindings.push(body.clone()),
                _ => objects.push((path, body.clone())),
            }
        }
        for (plural, policy) in policies {
            let name = &policy["metadata"]["name"];
            let binding = bindings
                .iter()
                .find(|binding| binding["spec"]["policyName"] == *name);
            let binding = binding
                .cloned()
                .unwrap_or_else(|| json!({"spec": {"policyName": name}}));
            cases.extend(objects.iter().map(|(collection, object)| PolicyCase {
                plural: plural.clone(),
                policy: policy.clone(),
                binding: binding.clone(),
                others: objects.iter().take(3).cloned().collect(),
                collection: collection.clone(),
                object: object.clone(),
            }));
        }
    }
    cases
}

/// CustomResourceDefinitions of the conformance scenarios, each with objects of its kind.
pub(super) fn definitions() -> Vec<(Value, Value)> {
    let mut pairs = Vec::new();
    for scenario in scenarios("") {
        let (mut definitions, mut objects) = (Vec::new(), Vec::new());
        collect(&scenario, &mut definitions, &mut objects);
        for definition in definitions {
            let kind = &definition["spec"]["names"]["kind"];
            let of_it: Vec<&Value> = objects
                .iter()
                .filter(|object| object["kind"] == *kind)
                .take(12)
                .collect();
            if of_it.is_empty() {
                let object = json!({"kind": kind, "spec": {"a": 1}});
                pairs.push((definition.clone(), object));
            }
            pairs.extend(
                of_it
                    .into_iter()
                    .map(|object| (definition.clone(), object.clone())),
            );
        }
    }
    pairs
}

fn collect(value: &Value, definitions: &mut Vec<Value>, objects: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            if value["spec"]["versions"].is_array() && value["spec"]["names"].is_object() {
                definitions.push(value.clone());
                return;
            }
            if value["kind"].is_string() && value["metadata"].is_object() {
                objects.push(value.clone());
            }
            fields
                .values()
                .for_each(|value| collect(value, definitions, objects));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|value| collect(value, definitions, objects)),
        _ => {}
    }
}
