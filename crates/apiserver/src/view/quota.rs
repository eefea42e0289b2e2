//! The table cells of a resource quota.

use serde_json::Value;

/// Used and allowed amounts (`cpu: 1/2, pods: 0/5`) of requests and of limits.
pub(super) fn columns(object: &Value) -> [Value; 2] {
    let status = &object["status"];
    let mut names: Vec<_> = status["hard"]
        .as_object()
        .into_iter()
        .flat_map(|hard| hard.keys())
        .collect();
    names.sort_unstable();
    [false, true].map(|limits| {
        let shown = names
            .iter()
            .filter(|name| name.starts_with("limits.") == limits)
            .map(|name| {
                let of = |part: &str| status[part][name.as_str()].as_str().unwrap_or("0").to_owned();
                format!("{name}: {}/{}", of("used"), of("hard"))
            });
        shown.collect::<Vec<_>>().join(", ").into()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_separate_and_names_are_sorted() {
        let quota = json!({"status": {
            "hard": {"pods": "5", "cpu": "2", "limits.cpu": "4"},
            "used": {"cpu": "1", "limits.cpu": "3"},
        }});
        assert_eq!(
            columns(&quota),
            [json!("cpu: 1/2, pods: 0/5"), json!("limits.cpu: 3/4")]
        );
        assert_eq!(columns(&json!({})), [json!(""), json!("")]);
    }
}
