//! StatefulSets.

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    defaulting::DefaultValue::{Empty, Number, Text},
    error_list::{ErrorList, list, text},
    persistent_volume_claim::check_claim,
    pod::{defaults::fill_template, warnings::warn_spec},
    row::Row,
    strategy::{Facts, MetadataChecks, NameRule, Strategy, Write},
    workload::{check_selector_and_template, fill_rollout},
};
use crate::{field_path::FieldPath, internal_types, object::Object, schema::Problem};

const IMMUTABLE_SPEC: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// The fields of the spec that may change.
const MUTABLE_FIELDS: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) struct StatefulSet;

impl Strategy for StatefulSet {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            name_rule: NameRule::Label,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("spec.replicas", Number(1)),
                ("spec.podManagementPolicy", Text("OrderedReady")),
                ("spec.updateStrategy.type", Text("RollingUpdate")),
                ("spec.revisionHistoryLimit", Number(10)),
                ("spec.persistentVolumeClaimRetentionPolicy", Empty),
                (
                    "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
                    Text("Retain"),
                ),
                (
                    "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
                    Text("Retain"),
                ),
                ("spec.volumeClaimTemplates[].kind", Text("PersistentVolumeClaim")),
                ("spec.volumeClaimTemplates[].apiVersion", Text("v1")),
                ("spec.volumeClaimTemplates[].spec.volumeMode", Text("Filesystem")),
                ("spec.volumeClaimTemplates[].status.phase", Text("Pending")),
            ],
            counters: &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            replica_counters: &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
            ready_replicas: "status.readyReplicas",
            columns: Some("Name Ready Age +Containers +Images"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, set: &mut Object) {
        let spec = &mut set.tree_mut()["spec"];
        fill_rollout(&mut spec["updateStrategy"], &[("partition", json!(0))]);
        fill_template(&mut spec["template"]);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), write.is_new(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        let fixed = |spec: &Value| {
            let mut spec = spec.clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.retain(|key, _| !MUTABLE_FIELDS.contains(&key.as_str()));
            }
            spec
        };
        if fixed(write.spec()) != fixed(&old["spec"]) {
            errors.forbidden("spec", IMMUTABLE_SPEC);
        }
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        let spec = write.spec();
        warn_spec(&spec["template"]["spec"], &"spec.template.spec", warnings);
        if spec["revisionHistoryLimit"].as_i64().is_some_and(|most| most < 0) {
            warnings.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                 recommended"
                    .to_owned(),
            );
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/spec/template/spec");
        let ready = row.ratio("/status/readyReplicas", "/spec/replicas");
        vec![row.name(), ready, row.age(), containers, images]
    }
}

fn check(spec: &Value, is_new: bool, errors: &mut ErrorList) {
    let policy = text(&spec["podManagementPolicy"]);
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.invalid("spec.podManagementPolicy", policy, why);
    }
    let strategy = &spec["updateStrategy"];
    let (rolling, path) = (
        &strategy["rollingUpdate"],
        FieldPath::from_root("spec.updateStrategy.rollingUpdate"),
    );
    match text(&strategy["type"]) {
        "OnDelete" => {
            if !rolling.is_null() {
                let shown = internal_types::format_as_struct("RollingUpdateStatefulSetStrategy", rolling);
                let why = "only allowed for updateStrategy 'RollingUpdate'".to_owned();
                errors.add(path, Problem::InvalidText(shown, why));
            }
        }
        "RollingUpdate" => {
            errors.not_negative(path.child("partition"), &rolling["partition"]);
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'".to_owned();
            let problem = Problem::InvalidText(
                internal_types::format_as_struct("StatefulSetUpdateStrategy", strategy),
                why,
            );
            errors.add("spec.updateStrategy", problem);
        }
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for key in ["whenDeleted", "whenScaled"] {
        let field = FieldPath::from_root("spec.persistentVolumeClaimRetentionPolicy");
        errors.one_of_if_given(field.child(key), &retention[key], &["Retain", "Delete"]);
    }
    let path = FieldPath::from_root("spec.volumeClaimTemplates");
    // The templates are immutable, so existing ones are not checked again.
    for (index, claim) in list(&spec["volumeClaimTemplates"]).iter().enumerate() {
        if is_new {
            check_claim(&claim["spec"], &path.index(index).child("spec"), errors);
        }
    }
    errors.not_negative("spec.replicas", &spec["replicas"]);
    errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.not_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
    let service = text(&spec["serviceName"]);
    if is_new && !service.is_empty() {
        errors.invalid_each("spec.serviceName", service, naming::label(service));
    }
    check_selector_and_template("statefulset", spec, errors);
}
