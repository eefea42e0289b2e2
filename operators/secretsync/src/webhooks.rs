//! The webhooks: what would be reported later is refused at once, and copies are protected on request.
//!
//! | name | sees | refuses |
//! |---|---|---|
//! | `syncs` | SecretSyncs whose spec is new | an invalid spec |
//! | `secrets`, `configmaps` | sources, and objects that consent to their adoption | values of the annotations that look like a mistake |
//! | `namespaces` | Namespaces that consent | values that look like a mistake; it warns of names of no namespace |
//! | `copies-of-secrets`, `copies-of-configmaps`, with `--protect-copies` | copies, which others than secretsync change or delete | changes of the content and of our metadata, and deletions |
//!
//! Only `syncs` fails closed: the other webhooks see objects that the cluster needs, and a mistake is reported by the
//! controller too, just as it repairs a copy. A value that was there before is never refused.

use windlass::{
    k8s_openapi::{
        api::{
            authentication::v1::SelfSubjectReview,
            core::v1::{ConfigMap, Namespace, Secret},
        },
        apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
    },
    kube::{
        Api, Client, ResourceExt,
        api::{ObjectMeta, PostParams},
        core::PartialObjectMeta,
    },
    prelude::{Error, ObjectKey, Resource},
    serde_json::Value,
    webhook::{
        AdmissionWebhook, Change, FieldErrors, Operation, ReviewRequest, Target, Validating, Verdict,
        Webhooks, validate, validate_target,
    },
};

use crate::{
    api::{
        ADOPT_ANNOTATION, ADOPTED_ANNOTATION, DELETION_POLICY_ANNOTATION, SOURCE_ANNOTATION,
        SOURCE_UID_LABEL, SYNCED_BY_ANNOTATION, SecretSync,
    },
    arguments::Arguments,
    consent::Consent,
    source_watch::SourceAnnotation,
};

/// Users of the cluster's own controllers, which collect garbage and empty namespaces.
const CLUSTER_USERS: &str = "request.userInfo.username.startsWith('system:serviceaccount:kube-system:') || \
                             request.userInfo.username == 'system:kube-controller-manager'";

/// What secretsync has written on a copy. Without the label, it is none.
const OWN_ANNOTATIONS: [&str; 4] = [
    SOURCE_ANNOTATION,
    SYNCED_BY_ANNOTATION,
    ADOPTED_ANNOTATION,
    DELETION_POLICY_ANNOTATION,
];

/// Adds secretsync's webhooks. With [`Arguments::protect_copies`] it asks the API server who this program is.
pub async fn add_webhooks(
    webhooks: Webhooks,
    client: &Client,
    arguments: &Arguments,
) -> Result<Webhooks, Error> {
    let own_name = if arguments.protect_copies {
        Some(own_username(client).await?)
    } else {
        None
    };
    Ok(add_webhooks_as(webhooks, arguments, own_name.as_deref()))
}

/// Like [`add_webhooks`], without a client, for manifests. `own_name` is the user as which secretsync writes copies, such as
/// `system:serviceaccount:secretsync:secretsync`; `None` if copies are not protected.
pub fn add_webhooks_as(webhooks: Webhooks, arguments: &Arguments, own_name: Option<&str>) -> Webhooks {
    let webhooks = webhooks
        .with(validate(check_sync).name(named("syncs")))
        .with(metadata_webhook::<Secret>("secrets", arguments))
        .with(metadata_webhook::<ConfigMap>("configmaps", arguments))
        .with(namespace_webhook(arguments))
        .reads::<Namespace>();
    let Some(own_name) = own_name else {
        return webhooks;
    };
    webhooks
        .with(copy_webhook::<Secret>("copies-of-secrets", own_name))
        .with(copy_webhook::<ConfigMap>("copies-of-configmaps", own_name))
}

fn named(what: &str) -> String {
    format!("{what}.{}", crate::api::GROUP)
}

/// The user as which this program writes.
async fn own_username(client: &Client) -> Result<String, Error> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|status| status.user_info?.username);
    user.ok_or_else(|| {
        "the API server does not say as which user secretsync writes: --protect-copies needs it".into()
    })
}

/// A SecretSync. An unchanged spec passes, so that a finalizer can be removed from one that was stored before.
fn check_sync(change: Change<'_, SecretSync>, _: &ReviewRequest) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let is_unchanged = change
        .old_object()
        .zip(change.new_object())
        .is_some_and(|(old, new)| old.spec == new.spec);
    let changed = change.new_object().filter(|_| !is_unchanged);
    if let Some(Err(message)) = changed.map(|sync| sync.spec.validate()) {
        let (field, why) = message.split_once(": ").unwrap_or(("spec", &message));
        errors.forbidden(field, why);
    }
    errors
}

/// The annotations of sources, in the operator's source namespace, and of objects that consent to their adoption. Of the
/// object only the metadata is decoded.
fn metadata_webhook<K>(name: &str, arguments: &Arguments) -> AdmissionWebhook<Validating>
where
    K: Resource<DynamicType = (), Scope: 'static>,
{
    let (source_namespace, annotation) = (arguments.source_namespace.clone(), arguments.annotation.clone());
    let condition = format!(
        "{} || request.namespace == '{source_namespace}' && {}",
        has("annotations", ADOPT_ANNOTATION),
        has("annotations", &annotation)
    );
    let check = move |change: Change<'_, PartialObjectMeta<K>>, request: &ReviewRequest| {
        let Some(object) = change.new_object() else {
            return FieldErrors::new();
        };
        let old = change.old_object().map(|old| &old.metadata);
        let mut errors = FieldErrors::new();
        if request.namespace.as_deref() == Some(&*source_namespace) {
            let changed = new_value(&object.metadata, old, &annotation);
            if let SourceAnnotation::Unclear(value) = SourceAnnotation::parse(changed) {
                errors.invalid(
                    path("annotations", &annotation),
                    value,
                    "is taken for a mistake: use `false`, `true`, or remove the annotation",
                );
            }
        }
        check_consent(&mut errors, &object.metadata, old, ADOPT_ANNOTATION);
        errors
    };
    validate_target(Target::of::<K>(), check)
        .name(named(name))
        .match_condition("annotated", condition)
        .in_system_namespaces()
        .fail_open()
}

/// The consent of a Namespace to copies and to adoption, in annotations and labels.
fn namespace_webhook(arguments: &Arguments) -> AdmissionWebhook<Validating> {
    let keys = [arguments.annotation.clone(), ADOPT_ANNOTATION.to_owned()];
    let parts = keys
        .iter()
        .flat_map(|key| ["annotations", "labels"].map(|part| has(part, key)));
    let condition = parts.collect::<Vec<_>>().join(" || ");
    let check = move |change: Change<'_, Namespace>, request: &ReviewRequest| -> Result<Verdict, Error> {
        let Some(namespace) = change.new_object() else {
            return Ok(Verdict::allow());
        };
        let old = change.old_object().map(|old| &old.metadata);
        let mut errors = FieldErrors::new();
        let mut unknown = Vec::new();
        for key in &keys {
            check_consent(&mut errors, &namespace.metadata, old, key);
            if states_the_same(&namespace.metadata, old, key) {
                continue;
            }
            let namespaces = request.lister::<Namespace>()?;
            let exists = |name: &str| {
                name == namespace.name_any() || namespaces.get(&ObjectKey::cluster_scoped(name)).is_some()
            };
            let consent = Consent::from_metadata(&namespace.metadata, key);
            let names = consent.named().filter(|name| !exists(name));
            unknown
                .extend(names.map(|name| format!("`{key}` names `{name}`, and there is no such namespace")));
        }
        let verdict = Verdict::from(errors);
        Ok(unknown.into_iter().fold(verdict, Verdict::warn))
    };
    validate(check)
        .name(named("namespaces"))
        .match_condition("consents", condition)
        .fail_open()
}

/// Protects copies from everyone but this program and the cluster's controllers. Labels and annotations of others may change.
fn copy_webhook<K>(name: &str, own_name: &str) -> AdmissionWebhook<Validating>
where
    K: Resource<DynamicType = (), Scope: 'static>,
{
    let others = format!(
        "!(request.userInfo.username == {} || {CLUSTER_USERS})",
        Value::from(own_name)
    );
    let selector = LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: SOURCE_UID_LABEL.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        ..LabelSelector::default()
    };
    validate_target(Target::of::<K>(), check_copy)
        .name(named(name))
        .operations([Operation::Update, Operation::Delete])
        .object_selector(selector)
        .match_condition("others", others)
        .in_system_namespaces()
        .fail_open()
}

fn check_copy(change: Change<'_, Value>, request: &ReviewRequest) -> Verdict {
    let Some(old) = change.old_object() else {
        return Verdict::allow();
    };
    if old["metadata"]["labels"][SOURCE_UID_LABEL].is_null() {
        // Who adds the label makes no copy: secretsync checks the UID.
        return Verdict::allow();
    }
    let is_same = change.new_object().is_some_and(|new| {
        let content =
            |object: &Value| ["type", "data", "binaryData", "immutable"].map(|field| object[field].clone());
        let ours = |object: &Value| OWN_ANNOTATIONS.map(|key| object["metadata"]["annotations"][key].clone());
        let label = |object: &Value| object["metadata"]["labels"][SOURCE_UID_LABEL].clone();
        content(old) == content(new) && ours(old) == ours(new) && label(old) == label(new)
    });
    if is_same {
        return Verdict::allow();
    }
    let source = old["metadata"]["annotations"][SOURCE_ANNOTATION].as_str();
    Verdict::deny(format!(
        "{} {} is a copy of {}, which secretsync keeps: change the source, or let the namespace withdraw its consent",
        request.kind.kind,
        request.name,
        source.map_or_else(|| "an object".to_owned(), crate::consent::quote),
    ))
}

/// Adds an error for each value of this annotation or label that is a mistake, unless it was there before.
fn check_consent(errors: &mut FieldErrors, metadata: &ObjectMeta, old: Option<&ObjectMeta>, key: &str) {
    if states_the_same(metadata, old, key) {
        return;
    }
    if let Some(mistake) = Consent::from_metadata(metadata, key).mistake(key, |_| true) {
        errors.forbidden(path("annotations", key), &mistake);
    }
}

/// Whether the annotation and the label of this name were there before, with the same values.
fn states_the_same(metadata: &ObjectMeta, old: Option<&ObjectMeta>, key: &str) -> bool {
    let stated = |metadata: &ObjectMeta| {
        [&metadata.annotations, &metadata.labels]
            .map(|all| all.as_ref().and_then(|all| all.get(key)).cloned())
    };
    old.map_or(stated(metadata) == [None, None], |old| {
        stated(old) == stated(metadata)
    })
}

/// The value of an annotation that was not there before.
fn new_value<'a>(metadata: &'a ObjectMeta, old: Option<&ObjectMeta>, key: &str) -> Option<&'a str> {
    let value = |metadata: &'a ObjectMeta| metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let old = old.and_then(|old| old.annotations.as_ref()?.get(key));
    value(metadata).filter(|value| old.is_none_or(|old| old != value))
}

/// `metadata.annotations[a/b]`
fn path(part: &str, key: &str) -> String {
    format!("metadata.{part}[{key}]")
}

/// A CEL expression: whether the object has this label or annotation.
fn has(part: &str, key: &str) -> String {
    format!("(has(object.metadata.{part}) && '{key}' in object.metadata.{part})")
}
