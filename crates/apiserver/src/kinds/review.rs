//! Reviews, which are answered but never stored: access reviews, rules reviews, token reviews and self subject reviews.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use windlass_api::request::Access;
use windlass_api::{fields, labels};

use super::{
    error_list::{ErrorList, list, text},
    strategy::Strategy,
};
use crate::{
    auth::{AccessControl, ISSUER, User, aggregate_messages},
    field_path::FieldPath,
    object::Object,
    schema::{FieldError, Problem},
    status::Status,
};

/// A kind whose objects are answered instead of stored.
pub(crate) trait Review: Sync {
    /// Sets the status.
    fn answer(
        &self,
        access_control: &AccessControl,
        user: &Arc<User>,
        review: &mut Object,
    ) -> Result<(), Status>;
}

pub(super) struct SelfSubjectReview;

impl Strategy for SelfSubjectReview {
    fn as_review(&self) -> Option<&dyn Review> {
        Some(self)
    }
}

impl Review for SelfSubjectReview {
    fn answer(
        &self,
        access_control: &AccessControl,
        user: &Arc<User>,
        review: &mut Object,
    ) -> Result<(), Status> {
        let now = access_control.store.environment.now_rfc3339();
        review.take_managed_fields();
        review.fields_mut().remove("spec");
        review
            .fields_mut()
            .insert("metadata".into(), json!({"creationTimestamp": now}));
        set_status(review, json!({"userInfo": user.to_user_info()}));
        Ok(())
    }
}

pub(super) struct SelfSubjectRulesReview;

impl Strategy for SelfSubjectRulesReview {
    fn as_review(&self) -> Option<&dyn Review> {
        Some(self)
    }
}

impl Review for SelfSubjectRulesReview {
    fn answer(
        &self,
        access_control: &AccessControl,
        user: &Arc<User>,
        review: &mut Object,
    ) -> Result<(), Status> {
        let namespace = review.text_at("spec.namespace");
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let status = rules_status(access_control, user, &namespace);
        review.take_managed_fields();
        review.fields_mut().insert("metadata".into(), json!({}));
        review.fields_mut().insert("spec".into(), json!({}));
        set_status(review, status);
        Ok(())
    }
}

pub(super) struct TokenReview;

impl Strategy for TokenReview {
    fn as_review(&self) -> Option<&dyn Review> {
        Some(self)
    }
}

impl Review for TokenReview {
    fn answer(
        &self,
        access_control: &AccessControl,
        _user: &Arc<User>,
        review: &mut Object,
    ) -> Result<(), Status> {
        let status = token_status(access_control, review)?;
        set_status(review, status);
        Ok(())
    }
}

/// The access reviews, by whom they ask about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessReview {
    /// `SelfSubjectAccessReview`: the caller.
    Caller,
    /// `SubjectAccessReview`: the user in the review.
    NamedUser,
    /// `LocalSubjectAccessReview`: the same, in one namespace.
    NamedUserInNamespace,
}

impl Strategy for AccessReview {
    fn as_review(&self) -> Option<&dyn Review> {
        Some(self)
    }
}

impl Review for AccessReview {
    fn answer(
        &self,
        access_control: &AccessControl,
        user: &Arc<User>,
        review: &mut Object,
    ) -> Result<(), Status> {
        check_access_review(*self, review)?;
        let spec = review.fields()["spec"].clone();
        let asked_for = match self {
            Self::Caller => user.clone(),
            Self::NamedUser | Self::NamedUserInNamespace => Arc::new(named_user(&spec)),
        };
        set_status(review, access_status(access_control, &asked_for, &spec));
        Ok(())
    }
}

fn access_status(access_control: &AccessControl, user: &User, spec: &Value) -> Value {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (access, error) = match &spec["resourceAttributes"] {
        Value::Null => {
            let attributes = &spec["nonResourceAttributes"];
            let access = Access::path(text(attributes, "verb"), text(attributes, "path"));
            (access, String::new())
        }
        attributes => {
            let said = |key: &str| text(attributes, key);
            let access = Access::resource(&said("verb"), &said("group"), &said("resource"))
                .with_subresource(&said("subresource"))
                .in_namespace(&said("namespace"))
                .with_name(&said("name"));
            (access, selector_errors(attributes))
        }
    };
    let verdict = access_control.decide(user, &access);
    let mut status = json!({"allowed": verdict.is_allowed()});
    for (key, value) in [("reason", verdict.reason(user)), ("evaluationError", error)] {
        if !value.is_empty() {
            status[key] = value.into();
        }
    }
    status
}

fn rules_status(access_control: &AccessControl, user: &User, namespace: &str) -> Value {
    let (rules, missing, is_complete) = access_control.rules_of(user, namespace);
    let of_resources: Vec<_> = rules.iter().filter(|rule| !rule.resources.is_empty()).collect();
    let of_paths: Vec<_> = rules
        .iter()
        .filter(|rule| !rule.non_resource_urls.is_empty())
        .collect();
    let mut status =
        json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": !is_complete});
    if !missing.is_empty() {
        status["evaluationError"] = aggregate_messages(&missing).into();
    }
    status
}

fn token_status(access_control: &AccessControl, review: &Object) -> Result<Value, Status> {
    let spec = &review.fields()["spec"];
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let mut audiences: Vec<String> = string_list(&spec["audiences"]);
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    Ok(match access_control.user_of_token(token, &audiences) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user.to_user_info(), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}

fn set_status(review: &mut Object, status: Value) {
    review.fields_mut().insert("status".into(), status);
}

fn string_list(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The user that a review names; no groups are added.
fn named_user(spec: &Value) -> User {
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: string_list(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), string_list(values)))
            .collect(),
    }
}

fn check_access_review(kind: AccessReview, review: &Object) -> Result<(), Status> {
    let spec = &review.fields()["spec"];
    let (on_resource, on_path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    let mut invalid = |field: &str, value: Value, why: &str| {
        errors.push(FieldError::new(field, Problem::Invalid(value, why.to_owned())));
    };
    // The real server formats this struct with its Go field names.
    let path = json!({"Path": on_path["path"].as_str().unwrap_or_default(), "Verb": on_path["verb"].as_str().unwrap_or_default()});
    match (on_resource.is_null(), on_path.is_null()) {
        (false, false) => invalid(
            "spec.nonResourceAttributes",
            path.clone(),
            "cannot be specified in combination with resourceAttributes",
        ),
        (true, true) => invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    let names_nobody = review.text_at("spec.user").is_empty() && string_list(&spec["groups"]).is_empty();
    if kind != AccessReview::Caller && names_nobody {
        invalid(
            "spec.user",
            "".into(),
            "at least one of user or group must be specified",
        );
    }
    errors.extend(check_selectors(on_resource));
    let mut invalid = |field: &str, value: Value, why: &str| {
        errors.push(FieldError::new(field, Problem::Invalid(value, why.to_owned())));
    };
    let local = kind == AccessReview::NamedUserInNamespace;
    let mut metadata: Map<String, Value> = review.metadata().clone();
    metadata.remove("managedFields");
    let others = metadata
        .keys()
        .filter(|key| !local || *key != "namespace")
        .count();
    if others > 0 {
        let why = if local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        invalid("metadata", metadata.into(), why);
    }
    if local {
        let namespace = review.text_at("spec.resourceAttributes.namespace");
        if !on_resource.is_null() && namespace != review.namespace() {
            invalid(
                "spec.resourceAttributes.namespace",
                namespace.into(),
                "must match metadata.namespace",
            );
        }
        if !on_path.is_null() {
            invalid(
                "spec.nonResourceAttributes",
                path,
                "disallowed on this kind of request",
            );
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // The real server leaves the kind out of this error.
    Err(Status::invalid("authorization.k8s.io", "", "", &errors))
}

fn check_selectors(attributes: &Value) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let attributes_path = FieldPath::from_root("spec.resourceAttributes");
    for kind in ["fieldSelector", "labelSelector"] {
        let selector = &attributes[kind];
        if selector.is_null() {
            continue;
        }
        let path = attributes_path.child(kind);
        let raw = text(&selector["rawSelector"]);
        let requirements = list(&selector["requirements"]);
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => errors.invalid(
                path.child("rawSelector"),
                raw,
                "may not specified at the same time as requirements",
            ),
            (true, true) => errors.required(
                path.child("requirements"),
                &format!("when {path} is specified, requirements or rawSelector is required"),
            ),
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = path.child("requirements");
            check_requirement(requirement, kind, &path.index(index), &mut errors);
        }
    }
    errors.into_errors()
}

/// An unknown operator is no error: a newer client may know it.
fn check_requirement(requirement: &Value, kind: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let of_fields = kind == "fieldSelector";
    if of_fields && text(&requirement["key"]).is_empty() {
        errors.required(path.child("key"), "must be specified");
    }
    errors.operator_values(path, requirement);
    if !of_fields {
        errors.requirement_key(path, requirement);
        errors.requirement_values(path, requirement);
    }
}

/// The evaluation error for unparsable selectors; RBAC ignores selectors otherwise.
fn selector_errors(attributes: &Value) -> String {
    let mut errors = Vec::new();
    for kind in ["fieldSelector", "labelSelector"] {
        let selector = &attributes[kind];
        let raw = selector["rawSelector"].as_str().unwrap_or_default();
        let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
        let understood = requirements.iter().filter(|one| is_parsable(one, kind)).count();
        let raw_is_bad = !raw.is_empty()
            && match kind {
                "fieldSelector" => raw.parse::<fields::Selector>().is_err(),
                _ => raw.parse::<labels::Selector>().is_err(),
            };
        if raw_is_bad || understood < requirements.len() {
            let partly = if understood > 0 { "partially " } else { "" };
            errors.push(format!(
                "spec.resourceAttributes.{kind} {partly}ignored due to parse error"
            ));
        }
    }
    errors.join("; ")
}

fn is_parsable(requirement: &Value, kind: &str) -> bool {
    let operator = requirement["operator"].as_str().unwrap_or_default();
    match kind {
        "fieldSelector" => {
            matches!(operator, "In" | "NotIn") && string_list(&requirement["values"]).len() == 1
        }
        _ => matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist"),
    }
}
