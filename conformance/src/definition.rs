//! The step `define`: a CRD, and the wait until it is served.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::scenario::{Action, Payload, Request, ResponseCondition};

/// Creates a CRD, waits until it is established, and then until its first served version responds.
pub(crate) fn steps(definition: &Value) -> Result<[(&'static str, Action); 3]> {
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| format!("the CRD has no {pointer}"))
    };
    let version = definition["spec"]["versions"]
        .as_array()
        .and_then(|versions| versions.iter().find(|version| version["served"] == true))
        .and_then(|version| version["name"].as_str())
        .context("the CRD serves no version")?;
    let served = format!(
        "/apis/{}/{version}/{}",
        text("/spec/group")?,
        text("/spec/names/plural")?
    );
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let one = format!("{all}/{}", text("/metadata/name")?);
    let get = |path: String| Request {
        method: "GET".to_owned(),
        path,
        query: Vec::new(),
        headers: Vec::new(),
        anonymous: false,
        content_type: "application/json".to_owned(),
        body: Payload::Empty,
        capture: BTreeMap::new(),
        pick: Vec::new(),
        ordered: false,
    };
    let condition = |pointer: Option<&str>, equals: Value| ResponseCondition {
        status: 200,
        pointer: pointer.map(str::to_owned),
        equals,
        contains: Vec::new(),
        called: None,
    };
    let create = Request {
        method: "POST".to_owned(),
        body: Payload::Json(definition.clone()),
        ..get(all.to_owned())
    };
    Ok([
        ("", Action::Request(create)),
        (
            " established",
            Action::Until(
                get(one),
                condition(Some("/status/conditions/1/status"), "True".into()),
            ),
        ),
        (
            " served",
            Action::Until(get(served), condition(None, Value::Null)),
        ),
    ])
}
