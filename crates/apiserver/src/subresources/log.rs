//! `pods/log`: the output of a pod's container.

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    environment::Environment,
    logs::LogOptions,
    request::{Query, Target},
    schema::{FieldError, Problem, time},
    status::Status,
    verbs::{Answer, WriteVerbs},
};

/// Reads a container's log. There is none before the pod is assigned to a node.
pub(crate) fn log(writes: &WriteVerbs, target: &Target, query: &Query) -> Result<Answer, Status> {
    validate_options(query, &target.name)?;
    let wanted = log_options(&writes.store.environment, query)?;
    let pod = writes.store.current(target)?.object.decode()?;
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
    let container = query.text("container");
    match container {
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
        return Ok(Answer::NoContent);
    }
    let container = container.or(all.first().map(String::as_str)).unwrap_or_default();
    let text = writes.pod_logs.read(pod.meta("uid"), container, &wanted);
    let text = text.ok_or_else(|| {
        Status::bad_request(format!(
            "previous terminated container {container:?} in pod {:?} not found",
            &*target.name
        ))
    })?;
    Ok(Answer::Text(
        text.filter(|piece| std::future::ready(!piece.is_empty())).boxed(),
    ))
}

fn log_options(environment: &Environment, query: &Query) -> Result<LogOptions, Status> {
    let count = |key: &str| -> Result<Option<usize>, Status> {
        Ok(query.number(key)?.and_then(|number| usize::try_from(number).ok()))
    };
    let ago = query.number("sinceSeconds")?.map(SignedDuration::from_secs);
    let since = ago.and_then(|ago| environment.now().checked_sub(ago).ok());
    Ok(LogOptions {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        tail: count("tailLines")?,
        since: since.or(since_time(query)?),
        limit_bytes: count("limitBytes")?,
    })
}

fn since_time(query: &Query) -> Result<Option<Timestamp>, Status> {
    let Some(text) = query.text("sinceTime") else {
        return Ok(None);
    };
    let canonical = time::canonical(text, time::Precision::Seconds).map_err(Status::bad_request)?;
    Ok(canonical.parse().ok())
}

fn validate_options(query: &Query, pod: &str) -> Result<(), Status> {
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
    let forbidden = if query.text("stream").is_some() {
        Some(("stream", "may not be specified"))
    } else if query.text("sinceSeconds").is_some() && query.text("sinceTime").is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        Some(("[]", why))
    } else {
        None
    };
    match forbidden {
        Some((field, why)) => {
            let error = FieldError::new(field, Problem::Forbidden(why.into()));
            Err(Status::invalid("", "PodLogOptions", pod, &[error]))
        }
        None => Ok(()),
    }
}
