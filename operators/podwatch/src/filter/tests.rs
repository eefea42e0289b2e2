use windlass::{
    cache::ObjectKey,
    k8s_openapi::jiff::Timestamp,
    kube::core::{ApiResource, GroupVersionKind},
    serde_json::json,
};

use super::*;
use crate::EventType;

fn notice(event: EventType, object: Value) -> Notice {
    Notice {
        event,
        inferred: false,
        kind: Arc::new(ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apps",
            "v1",
            "Deployment",
        ))),
        key: ObjectKey::namespaced("shop", "web"),
        uid: None,
        resource_version: None,
        time: Timestamp::UNIX_EPOCH,
        object: Some(Arc::new(object)),
        changes: vec![FieldChange {
            path: "spec.replicas".to_owned(),
            old: Some(json!(1)),
            new: Some(json!(4)),
        }],
        coalesced: 0,
    }
}

fn filter(source: &str) -> Filter {
    source.parse().unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[test]
fn expression_can_use_all_variables() {
    let notice = notice(
        EventType::Updated,
        json!({ "spec": { "replicas": 4, "ratio": 0.5, "paused": false, "list": ["a"] }, "metadata": { "labels": { "a.b/c": "x" } } }),
    );
    let old = json!({ "spec": { "replicas": 1 } });
    for (source, expected) in [
        ("true", true),
        ("object.spec.replicas > 3", true),
        ("object.spec.replicas + 1 == 5", true),
        ("object.spec.ratio < 1.0", true),
        ("object.spec.paused", false),
        ("!object.spec.paused", true),
        ("'a' in object.spec.list", true),
        ("object.metadata.labels['a.b/c'] == 'x'", true),
        ("has(object.status) && object.status.ready", false),
        ("object.?status.?phase.orValue('none') == 'none'", true),
        ("old.spec.replicas == 1", true),
        ("old != null && old.spec.replicas < object.spec.replicas", true),
        (
            "changes.exists(c, c.path.startsWith('spec.') && c.new == 4)",
            true,
        ),
        ("changes.all(c, c.path != 'spec.replicas')", false),
        ("event == 'updated'", true),
        ("event in ['added', 'deleted']", false),
        ("kind == 'Deployment' && key == 'shop/web' && name == 'web'", true),
        ("name.matches('^w.b$')", true),
        ("name.upperAscii() == 'WEB'", true),
        ("size(changes) == 1 ? name == 'web' : false", true),
    ] {
        let filter = filter(source);
        assert_eq!(filter.matches(&notice, Some(&old)), expected, "{source}");
        assert_eq!(filter.failures(), 0, "{source}");
    }
}

#[test]
fn invalid_expression_is_rejected_with_position_and_reason() {
    for (source, reason, column) in [
        ("", "empty expression", 1),
        ("object.spec.replicas >", "syntax error", 23),
        ("object.spec..x", "syntax error", 13),
        ("1 +", "syntax error", 4),
        (
            "objekt.spec == 1",
            "unknown variable `objekt`: use one of `object` (",
            1,
        ),
        ("event == 'added' && nam == 'x'", "unknown variable `nam`", 21),
        ("changes.exists(c, d == 1)", "unknown variable `d`", 19),
        ("name.beginsWith('a')", "unknown function `beginsWith`", 16),
        ("now() > 1", "unknown function `now`", 4),
        ("'text'", "the expression returns a string, not a bool", 1),
        ("object", "the expression returns an object, not a bool", 1),
        ("size(changes)", "the expression returns a number, not a bool", 5),
        (
            "changes.filter(c, true)",
            "the expression returns a list, not a bool",
            15,
        ),
        ("1 + 2", "the expression returns a sum, not a bool", 3),
        ("event == 'added' ? 1 : 2", "returns a number, not a bool", 18),
    ] {
        let error = source.parse::<Filter>().expect_err(source).to_string();
        let mut lines = error.lines();
        assert!(
            lines.next().is_some_and(|first| first.contains(reason)),
            "{source}: {error}"
        );
        assert_eq!(
            lines.next().map(str::trim_start),
            Some(source.trim_start()),
            "{error}"
        );
        let mark = lines
            .next()
            .and_then(|line| line.find('^'))
            .map(|place| place - 1);
        assert_eq!(mark, Some(column), "{source}:\n{error}");
    }
}

#[test]
fn error_position_is_relative_to_its_line() {
    let error = "event == 'added'\n  && nonsense"
        .parse::<Filter>()
        .expect_err("refused");
    assert!(
        error.to_string().ends_with("\n    && nonsense\n       ^"),
        "{error}"
    );
}

/// Reported and counted, so that nothing is lost.
#[test]
fn notice_matches_if_the_filter_fails_on_it() {
    let filter = filter("object.spec.replicas > 3");
    assert!(filter.matches(&notice(EventType::Added, json!({ "spec": {} })), None));
    assert!(filter.matches(
        &notice(EventType::Added, json!({ "spec": { "replicas": "many" } })),
        None
    ));
    assert!(!filter.matches(
        &notice(EventType::Added, json!({ "spec": { "replicas": 1 } })),
        None
    ));
    assert_eq!(filter.failures(), 2);
    let not_boolean = self::filter("object.spec");
    assert!(not_boolean.matches(&notice(EventType::Added, json!({ "spec": {} })), None));
    assert_eq!(not_boolean.failures(), 1);
}

/// The state before a restart is unknown, and a change during it must not be lost.
#[test]
fn inferred_update_matches_filters_on_old_state() {
    let mut missed = notice(EventType::Updated, json!({ "spec": { "replicas": 4 } }));
    missed.inferred = true;
    missed.changes.clear();
    assert!(filter("changes.exists(c, c.path == 'spec.replicas')").matches(&missed, None));
    assert!(filter("old.spec.replicas == 2").matches(&missed, None));
    assert!(!filter("object.spec.replicas == 2").matches(&missed, None));
}

#[test]
fn distinct_failures_are_logged_once_up_to_a_limit() {
    let filter = filter("object[name] == 1");
    for place in 0..100 {
        let mut notice = notice(EventType::Added, json!({}));
        notice.key = ObjectKey::namespaced("shop", format!("n{place}"));
        assert!(filter.matches(&notice, None));
        assert!(filter.matches(&notice, None));
    }
    assert_eq!(filter.failures(), 200);
    assert_eq!(filter.0.logged.lock().len(), MAX_LOGGED_FAILURES);
}
