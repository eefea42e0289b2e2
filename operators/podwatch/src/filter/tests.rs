use windlass::{
    cache::ObjectKey,
    k8s_openapi::jiff::Timestamp,
    kube::core::{ApiResource, GroupVersionKind},
    serde_json::json,
};

use super::*;
use crate::What;

fn notice(what: What, object: Value) -> Notice {
    Notice {
        what,
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
    }
}

fn filter(source: &str) -> Filter {
    source.parse().unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[test]
fn an_expression_sees_the_object_before_and_after_and_what_happened() {
    let notice = notice(
        What::Updated,
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
        ("what == 'updated'", true),
        ("what in ['added', 'deleted']", false),
        ("kind == 'Deployment' && key == 'shop/web' && name == 'web'", true),
        ("name.matches('^w.b$')", true),
        ("name.upperAscii() == 'WEB'", true),
        ("size(changes) == 1 ? name == 'web' : false", true),
    ] {
        let filter = filter(source);
        assert_eq!(filter.wants(&notice, Some(&old)), expected, "{source}");
        assert_eq!(filter.failures(), 0, "{source}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_the_place_and_the_reason() {
    for (source, why, column) in [
        ("", "it is empty", 1),
        ("object.spec.replicas >", "it does not parse", 23),
        ("object.spec..x", "it does not parse", 13),
        ("1 +", "it does not parse", 4),
        (
            "objekt.spec == 1",
            "`objekt` is not known here: there are `object` (",
            1,
        ),
        ("what == 'added' && nam == 'x'", "`nam` is not known here", 20),
        ("changes.exists(c, d == 1)", "`d` is not known here", 19),
        ("name.beginsWith('a')", "there is no function `beginsWith`", 16),
        ("now() > 1", "there is no function `now`", 4),
        ("'text'", "it gives a text, not true or false", 1),
        ("object", "it gives an object, not true or false", 1),
        ("size(changes)", "it gives a number, not true or false", 5),
        (
            "changes.filter(c, true)",
            "it gives a list, not true or false",
            15,
        ),
        ("1 + 2", "it gives a sum, not true or false", 3),
        ("what == 'added' ? 1 : 2", "it gives a number", 17),
    ] {
        let error = source.parse::<Filter>().expect_err(source).to_string();
        let mut lines = error.lines();
        assert!(
            lines.next().is_some_and(|first| first.contains(why)),
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
fn the_place_is_found_on_its_line() {
    let error = "what == 'added'\n  && nonsense"
        .parse::<Filter>()
        .expect_err("refused");
    assert!(
        error.to_string().ends_with("\n    && nonsense\n       ^"),
        "{error}"
    );
}

/// Never lost: what cannot be judged is told, and counted.
#[test]
fn a_notice_on_which_it_fails_is_wanted() {
    let filter = filter("object.spec.replicas > 3");
    assert!(filter.wants(&notice(What::Added, json!({ "spec": {} })), None));
    assert!(filter.wants(
        &notice(What::Added, json!({ "spec": { "replicas": "many" } })),
        None
    ));
    assert!(!filter.wants(&notice(What::Added, json!({ "spec": { "replicas": 1 } })), None));
    assert_eq!(filter.failures(), 2);
    let not_boolean = self::filter("object.spec");
    assert!(not_boolean.wants(&notice(What::Added, json!({ "spec": {} })), None));
    assert_eq!(not_boolean.failures(), 1);
}

/// What was before a restart is not known, and a change that happened meanwhile must not be lost for that.
#[test]
fn an_update_that_is_inferred_passes_who_asks_what_was_before() {
    let mut missed = notice(What::Updated, json!({ "spec": { "replicas": 4 } }));
    missed.inferred = true;
    missed.changes.clear();
    assert!(filter("changes.exists(c, c.path == 'spec.replicas')").wants(&missed, None));
    assert!(filter("old.spec.replicas == 2").wants(&missed, None));
    assert!(!filter("object.spec.replicas == 2").wants(&missed, None));
}

#[test]
fn each_kind_of_failure_is_remembered_once_and_no_more_than_so_many() {
    let filter = filter("object[name] == 1");
    for place in 0..100 {
        let mut notice = notice(What::Added, json!({}));
        notice.key = ObjectKey::namespaced("shop", format!("n{place}"));
        assert!(filter.wants(&notice, None));
        assert!(filter.wants(&notice, None));
    }
    assert_eq!(filter.failures(), 200);
    assert_eq!(filter.0.logged.lock().len(), MOST_FAILURES);
}
