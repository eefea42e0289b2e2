//! The type check of ValidatingAdmissionPolicies: once for each generation, against the kinds that its rules name.
//!
//! ```text
//!   spec.matchConstraints ──discovery──► kinds ──OpenAPI──► schemas ──► PolicyTypes::check ──► status.typeChecking
//! ```
//!
//! Rules with a wildcard name no kind, as on a real control plane. A kind that is installed later is looked at with the next
//! generation of the policy.

use std::collections::{BTreeSet, HashMap};

use kube::{
    Client, ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use windlass_apiserver::{PolicyTypes, schema_of_kind};
use windlass_runtime::{Action, Context, Controller, Error, Manager, Request, Watch};

use super::kinds::ServedKinds;

/// The name of the controller, and the field manager of its writes, as on a real control plane.
const NAME: &str = "validatingadmissionpolicy-status-controller";
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";

/// How many kinds are checked, once a rule has named so many.
const MAX_KINDS: usize = 10;

pub(super) fn add(manager: Manager) -> Manager {
    let policies = Watch::<DynamicObject>::dynamic(policy_resource()).cluster_scoped();
    let controller = Controller::from_watch(NAME, policies).field_manager(FIELD_MANAGER);
    manager.controller(controller.reconcile(reconcile))
}

fn policy_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
    ApiResource::from_gvk_with_plural(&kind, "validatingadmissionpolicies")
}

async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(policy) = ctx
        .dynamic_lister::<DynamicObject>(&policy_resource())?
        .get(&request.key)
    else {
        return Ok(Action::done());
    };
    let generation = policy.metadata.generation.unwrap_or_default();
    if policy.data["status"]["observedGeneration"].as_i64() >= Some(generation) {
        return Ok(Action::done());
    }
    let spec = &policy.data["spec"];
    let warnings = types_of(spec, ctx.client()).await?.check(spec);
    let warnings: Vec<_> = warnings
        .into_iter()
        .map(|warning| json!({"fieldRef": warning.field_ref, "warning": warning.warning}))
        .collect();
    let mut checking = json!({});
    if !warnings.is_empty() {
        checking["expressionWarnings"] = warnings.into();
    }
    let mut checked = DynamicObject::new(&policy.name_any(), &policy_resource());
    checked.data = json!({"status": {"observedGeneration": generation, "typeChecking": checking}});
    ctx.writer()
        .dynamic(policy_resource())
        .apply_status(&checked)
        .await?;
    Ok(Action::done())
}

/// Returns the types of the kinds that the policy applies to, and of its parameters.
async fn types_of(spec: &Value, client: &Client) -> Result<PolicyTypes, Error> {
    let rules = items(&spec["matchConstraints"]["resourceRules"]);
    let params = spec["paramKind"].as_object().map(|params| {
        let field = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = split_api_version(field("apiVersion"));
        GroupVersionKind::gvk(group, version, field("kind"))
    });
    let mut types = PolicyTypes::default();
    if rules.is_empty() && params.is_none() {
        return Ok(types);
    }
    let kinds = kinds_of(rules, &ServedKinds::discover(client).await?);
    let mut schemas = Schemas::new(client);
    for [group, version, kind] in &kinds {
        // Kinds without a schema, such as those of other servers, are not checked.
        if let Some(schema) = schemas.of([group, version, kind]).await? {
            types.add_kind(format!("{group}/{version}, Kind={kind}"), kind, &schema);
        }
    }
    if let Some(params) = params {
        let schema = schemas.of([&params.group, &params.version, &params.kind]).await?;
        types.set_params(&params.kind, schema.as_ref());
    }
    Ok(types)
}

/// Returns group, version and kind of what the rules name, in order.
fn kinds_of(rules: &[Value], served: &ServedKinds) -> BTreeSet<[String; 3]> {
    let mut kinds = BTreeSet::new();
    for rule in rules {
        let names = |field: &str| {
            let mut names: Vec<&str> = items(&rule[field]).iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions) = (names("apiGroups"), names("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let resources: Vec<&str> = names("resources")
            .into_iter()
            .filter(|name| !name.contains(['*', '/']))
            .collect();
        let mut found = 0;
        for group in &groups {
            for version in &versions {
                for kind in resources
                    .iter()
                    .flat_map(|resource| served.named(group, version, resource))
                {
                    kinds.insert([kind.group.clone(), kind.version.clone(), kind.kind.clone()]);
                    found += 1;
                    if found == MAX_KINDS {
                        return kinds;
                    }
                }
            }
        }
    }
    kinds
}

/// The OpenAPI documents of the server, each fetched once.
struct Schemas<'a> {
    client: &'a Client,
    documents: HashMap<String, Value>,
}

impl<'a> Schemas<'a> {
    fn new(client: &'a Client) -> Self {
        Self {
            client,
            documents: HashMap::new(),
        }
    }

    async fn of(&mut self, kind: [&str; 3]) -> Result<Option<Value>, Error> {
        let [group, version, _] = kind;
        let path = if group.is_empty() {
            format!("/openapi/v3/api/{version}")
        } else {
            format!("/openapi/v3/apis/{group}/{version}")
        };
        if !self.documents.contains_key(&path) {
            let request = http::Request::get(&path).body(Vec::new());
            let document = match request {
                Ok(request) => match self.client.request::<Value>(request).await {
                    Ok(document) => document,
                    Err(kube::Error::Api(status)) if status.is_not_found() => Value::Null,
                    Err(error) => return Err(error.into()),
                },
                // A group or version that is not one, of parameters.
                Err(_) => Value::Null,
            };
            self.documents.insert(path.clone(), document);
        }
        Ok(schema_of_kind(&self.documents[&path], kind))
    }
}

fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
