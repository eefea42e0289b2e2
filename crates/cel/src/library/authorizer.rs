//! `authorizer`, which asks the host whether a user may do something.

use std::{any::Any, fmt, sync::Arc};

use windlass_api::naming;

use super::{Result, no_overload};
use crate::{
    EvalError, Type, Value,
    function::{Args, FunctionSpec},
    value::Opaque,
};

/// Decides requests. The host implements it, and passes [`authorizer`] as a variable.
pub trait Authorizer: Send + Sync {
    /// Decides about one request.
    fn authorize(&self, check: &Check) -> Decision;
}

/// A request that an expression asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// The namespace and name of a service account; `None` for the user of the admitted request.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource. Then the fields below are empty, except for the verb.
    pub path: Option<String>,
    /// The API group.
    pub group: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource, if any.
    pub subresource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// A field selector, as written.
    pub field_selector: String,
    /// A label selector, as written.
    pub label_selector: String,
    /// The verb, such as `get`.
    pub verb: String,
}

impl Check {
    /// The bytes of all texts, which each step of an expression copies.
    fn bytes(&self) -> usize {
        let account = self.service_account.as_ref();
        let texts = [
            &self.group,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector,
            &self.label_selector,
            &self.verb,
        ];
        texts
            .into_iter()
            .chain(&self.path)
            .chain(
                account
                    .into_iter()
                    .flat_map(|(namespace, name)| [namespace, name]),
            )
            .map(String::len)
            .sum::<usize>()
            .saturating_add(size_of::<Self>())
    }
}

/// The answer of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What failed while deciding.
    pub error: Option<String>,
}

/// Which calls a value allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
}

#[derive(Clone)]
struct CheckValue {
    authorizer: Arc<dyn Authorizer>,
    stage: Stage,
    check: Check,
}

impl fmt::Debug for CheckValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.check).finish()
    }
}

impl Opaque for CheckValue {
    fn type_of(&self) -> Type {
        Type::parse(match self.stage {
            Stage::Authorizer => "Authorizer",
            Stage::Path => "PathCheck",
            Stage::Group => "GroupCheck",
            Stage::Resource => "ResourceCheck",
        })
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        let other = other.as_any().downcast_ref();
        other.map(|other: &Self| self.stage == other.stage && self.check == other.check)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Decision {
    fn type_of(&self) -> Type {
        Type::parse("Decision")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other.as_any().downcast_ref().map(|other: &Self| other == self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes the value of the variable `authorizer`; its type is `kubernetes.authorization.Authorizer`.
///
/// With a `check`, makes that of `authorizer.requestResource`, of type `kubernetes.authorization.ResourceCheck`.
pub fn authorizer<'a>(authorizer: Arc<dyn Authorizer>, check: Option<Check>) -> Value<'a> {
    Value::opaque(CheckValue {
        authorizer,
        stage: if check.is_some() {
            Stage::Resource
        } else {
            Stage::Authorizer
        },
        check: check.unwrap_or_default(),
    })
}

/// A row for a function that sets a part of a check.
macro_rules! builder {
    ($name:literal, $id:literal, $signature:literal, $from:expr, $to:expr, $set:expr) => {
        FunctionSpec {
            name: $name,
            overloads: &[($id, $signature)],
            eval: |mut args| build(&mut args, $name, $from, $to, $set),
        }
    };
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    builder!(
        "path",
        "authorizer_path",
        "Authorizer.(string) -> PathCheck",
        Stage::Authorizer,
        Stage::Path,
        |check, text| {
            if text.trim().is_empty() {
                return Err(EvalError::new("path must not be empty"));
            }
            check.path = Some(text);
            Ok(())
        }
    ),
    builder!(
        "group",
        "authorizer_group",
        "Authorizer.(string) -> GroupCheck",
        Stage::Authorizer,
        Stage::Group,
        |check, text| {
            check.group = text;
            Ok(())
        }
    ),
    builder!(
        "resource",
        "groupcheck_resource",
        "GroupCheck.(string) -> ResourceCheck",
        Stage::Group,
        Stage::Resource,
        |check, text| {
            if text.trim().is_empty() {
                return Err(EvalError::new("resource must not be empty"));
            }
            check.resource = text;
            Ok(())
        }
    ),
    builder!(
        "subresource",
        "resourcecheck_subresource",
        "ResourceCheck.(string) -> ResourceCheck",
        Stage::Resource,
        Stage::Resource,
        |check, text| {
            check.subresource = text;
            Ok(())
        }
    ),
    builder!(
        "namespace",
        "resourcecheck_namespace",
        "ResourceCheck.(string) -> ResourceCheck",
        Stage::Resource,
        Stage::Resource,
        |check, text| {
            check.namespace = text;
            Ok(())
        }
    ),
    builder!(
        "name",
        "resourcecheck_name",
        "ResourceCheck.(string) -> ResourceCheck",
        Stage::Resource,
        Stage::Resource,
        |check, text| {
            check.name = text;
            Ok(())
        }
    ),
    builder!(
        "fieldSelector",
        "authorizer_fieldselector",
        "ResourceCheck.(string) -> ResourceCheck",
        Stage::Resource,
        Stage::Resource,
        |check, text| {
            check.field_selector = text;
            Ok(())
        }
    ),
    builder!(
        "labelSelector",
        "authorizer_labelselector",
        "ResourceCheck.(string) -> ResourceCheck",
        Stage::Resource,
        Stage::Resource,
        |check, text| {
            check.label_selector = text;
            Ok(())
        }
    ),
    FunctionSpec {
        name: "serviceAccount",
        overloads: &[(
            "authorizer_serviceaccount",
            "Authorizer.(string, string) -> Authorizer",
        )],
        eval: service_account,
    },
    FunctionSpec {
        name: "check",
        overloads: &[
            ("pathcheck_check", "PathCheck.(string) -> Decision"),
            ("resourcecheck_check", "ResourceCheck.(string) -> Decision"),
        ],
        eval: check,
    },
    FunctionSpec {
        name: "errored",
        overloads: &[("decision_errored", "Decision.() -> bool")],
        eval: |args| decision(&args, "errored", |decision| Value::Bool(decision.error.is_some())),
    },
    FunctionSpec {
        name: "error",
        overloads: &[("decision_error", "Decision.() -> string")],
        eval: |args| {
            decision(&args, "error", |decision| {
                Value::string(decision.error.clone().unwrap_or_default())
            })
        },
    },
    FunctionSpec {
        name: "allowed",
        overloads: &[("decision_allowed", "Decision.() -> bool")],
        eval: |args| decision(&args, "allowed", |decision| Value::Bool(decision.allowed)),
    },
    FunctionSpec {
        name: "reason",
        overloads: &[("decision_reason", "Decision.() -> string")],
        eval: |args| decision(&args, "reason", |decision| Value::string(decision.reason.clone())),
    },
];

fn build<'a>(
    args: &mut Args<'_, 'a>,
    name: &str,
    from: Stage,
    to: Stage,
    set: impl Fn(&mut Check, String) -> std::result::Result<(), EvalError>,
) -> Result<'a> {
    match (args.values[0].downcast::<CheckValue>(), &args.values[1]) {
        (Some(value), Value::String(text)) if value.stage == from => {
            // At most all texts of the request are copied.
            args.work.build(value.check.bytes().saturating_add(text.len()))?;
            let mut value = value.clone();
            value.stage = to;
            set(&mut value.check, (**text).to_owned())?;
            Ok(Value::opaque(value))
        }
        _ => no_overload(name, args.values),
    }
}

fn service_account<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let value = args.values[0].downcast::<CheckValue>();
    let (Some(value), Value::String(namespace), Value::String(name)) =
        (value, &args.values[1], &args.values[2])
    else {
        return no_overload("serviceAccount", args.values);
    };
    if !naming::subdomain(name).is_empty() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if !naming::label(namespace).is_empty() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    args.work.build(value.check.bytes())?;
    let mut value = value.clone();
    value.check.service_account = Some(((**namespace).to_owned(), (**name).to_owned()));
    Ok(Value::opaque(value))
}

fn check<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match (args.values[0].downcast::<CheckValue>(), &args.values[1]) {
        (Some(value), Value::String(verb)) if matches!(value.stage, Stage::Path | Stage::Resource) => {
            let mut check = value.check.clone();
            (**verb).clone_into(&mut check.verb);
            Ok(Value::opaque(value.authorizer.authorize(&check)))
        }
        _ => no_overload("check", args.values),
    }
}

fn decision<'a>(args: &Args<'_, 'a>, name: &str, part: impl Fn(&Decision) -> Value<'a>) -> Result<'a> {
    match args.values[0].downcast::<Decision>() {
        Some(decision) => Ok(part(decision)),
        None => no_overload(name, args.values),
    }
}
