//! `pods/log`: what a pod's containers have printed.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    request::{Query, Target},
    schema::{FieldError, Problem},
    status::Status,
    verbs::{Answer, Api},
};

impl Api {
    /// A container's log. Before the pod is on a node there is none; after that, whoever runs it would have it.
    pub(crate) fn log(&self, target: &Target, query: &Query) -> Result<Answer, Status> {
        check(query, &target.name)?;
        let pod = self.current(target)?.object.decode();
        let spec = pod.fields().get("spec").unwrap_or(&Value::Null);
        let names = |list: &str| -> Vec<String> {
            let containers = spec[list].as_array().into_iter().flatten();
            containers
                .filter_map(|c| c["name"].as_str().map(str::to_owned))
                .collect()
        };
        let all: Vec<_> = ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(names)
            .collect();
        match query.text("container") {
            Some(name) if !all.iter().any(|known| known == name) => {
                return Err(Status::bad_request(format!(
                    "container {name} is not valid for pod {}",
                    target.name
                )));
            }
            None if all.len() > 1 => {
                return Err(Status::bad_request(format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    target.name,
                    all.join(" ")
                )));
            }
            _ => {}
        }
        if pod.text_at("spec.nodeName").is_empty() {
            return Ok(Answer::Nothing);
        }
        Ok(Answer::Text(Bytes::new()))
    }
}

fn check(query: &Query, pod: &str) -> Result<(), Status> {
    for (key, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
        ("limitBytes", 1, "must be greater than 0"),
    ] {
        if let Some(number) = query.number(key)?.filter(|number| *number < least) {
            let error = FieldError::new(key, Problem::Invalid(number.into(), why.into()));
            return Err(Status::invalid("", "PodLogOptions", pod, &[error]));
        }
    }
    Ok(())
}
