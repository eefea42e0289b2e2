use proptest::prelude::*;
use serde_json::json;

use super::*;

fn matches(selector: &str, labels: &[(&str, &str)]) -> Option<bool> {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let selector: Selector = selector.parse().ok()?;
    Some(selector.matches_map(&labels.collect()))
}

#[test]
fn label_selectors_match() {
    let labels = [("app", "web"), ("tier", "b"), ("n", "2"), ("e", "")];
    for (text, expected) in [
        ("app=web", true),
        ("app==web,tier=b", true),
        ("app!=web", false),
        ("app", true),
        ("!app", false),
        ("!other", true),
        ("!other,!app", false),
        ("app in (web, api)", true),
        ("app in (db, web),e", true),
        ("app notin (web,api)", false),
        ("other notin (web)", true),
        ("other in (web)", false),
        ("other!=x", true),
        ("e=", true),
        ("app == web , e=", true),
        ("e in (,x)", true),
        ("n>1,n<3", true),
        ("n>2", false),
        ("app>2", false),
        ("size > 5", false),
        (" app = web ", true),
        ("", true),
    ] {
        assert_eq!(matches(text, &labels), Some(expected), "{text}");
    }
}

#[test]
fn invalid_label_selectors_are_rejected() {
    let error = |text: &str| text.parse::<Selector>().expect_err(text).to_string();
    assert_eq!(
        error("=x"),
        "found '=', expected: !, identifier, or 'end of string'"
    );
    for text in [
        "a in",
        "a in (",
        "a in x",
        "a b",
        "a,,b",
        "a=b c",
        "!",
        "a,",
        "app near (web)",
    ] {
        assert!(text.parse::<Selector>().is_err(), "{text}");
    }
}

/// The rest of its behaviour is that of the text form, which has the same requirements.
#[test]
fn selector_of_an_object_has_the_text_form() {
    for (selector, expected) in [
        (json!({}), ""),
        (json!({"matchLabels": {"b": "1", "a": "2"}}), "a=2,b=1"),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["y", "x"]}]}),
            "a notin (x,y)",
        ),
        (
            json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            "a,b=1",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
            "!a",
        ),
    ] {
        let from_json = Selector::from_json(&selector);
        assert_eq!(from_json.to_string(), expected);
        assert_eq!(expected.parse(), Ok(from_json));
        #[cfg(feature = "kube")]
        {
            let typed: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector =
                serde_json::from_value(selector).expect("a selector");
            assert_eq!(Selector::try_from(&typed).expect(expected).to_string(), expected);
        }
    }
}

#[cfg(feature = "kube")]
#[test]
fn typed_selector_is_checked() {
    for (expression, expected) in [
        (
            json!({"key": "a", "operator": "Near"}),
            "\"Near\" is not a valid label selector operator",
        ),
        (
            json!({"key": "a", "operator": "Gt", "values": ["1"]}),
            "\"Gt\" is not a valid label selector operator",
        ),
        (
            json!({"key": "a", "operator": "In"}),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
    ] {
        let selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector =
            serde_json::from_value(json!({"matchExpressions": [expression]})).expect("a selector");
        let error = Selector::try_from(&selector).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

#[cfg(feature = "kube")]
#[test]
fn selector_of_kube_has_the_same_text() {
    use kube::core::Expression;
    let expressions = [
        Expression::In("a".into(), ["y".into(), "x".into()].into()),
        Expression::NotIn("b".into(), ["x".into()].into()),
        Expression::Equal("c".into(), "x".into()),
        Expression::NotEqual("d".into(), "x".into()),
        Expression::Exists("e".into()),
        Expression::DoesNotExist("f".into()),
    ];
    let selector: kube::core::Selector = expressions.into_iter().collect();
    let expected = "a in (x,y),b notin (x),c=x,d notin (x),e,!f";
    assert_eq!(Selector::from(selector).to_string(), expected);
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let key = || {
        "(in|notin|[a-z]{1,6}(\\.io/[a-z]{1,4})?)"
            .prop_filter("not an operator", |key| key != "in" && key != "notin")
    };
    let value = || "[a-zA-Z0-9]([a-z0-9._-]{0,5}[a-z0-9])?";
    // Without duplicates, like the parser's.
    let values = move || {
        prop::collection::btree_set(value(), 1..4).prop_map(|values| values.into_iter().collect::<Vec<_>>())
    };
    let bound = || (0..i64::MAX).prop_map(|bound| vec![bound.to_string()]);
    let of = |operator| move |(key, values)| Requirement::new(key, operator, values);
    prop_oneof![
        (key(), Just(Vec::new())).prop_map(of(Operator::Exists)),
        (key(), Just(Vec::new())).prop_map(of(Operator::DoesNotExist)),
        (key(), values()).prop_map(of(Operator::In)),
        (key(), values()).prop_map(of(Operator::NotIn)),
        (key(), bound()).prop_map(of(Operator::GreaterThan)),
        (key(), bound()).prop_map(of(Operator::LessThan)),
    ]
}

proptest! {
    #[test]
    fn label_selector_round_trips_through_text(requirements in prop::collection::vec(requirement(), 0..5)) {
        let selector = Selector(requirements);
        let text = selector.to_string();
        prop_assert_eq!(text.parse(), Ok(selector), "{}", text);
    }

    #[test]
    fn parser_accepts_any_text(text in "[a-c0-9=!,()<> \\PC]{0,24}", any in ".{0,24}") {
        for text in [text, any] {
            if let Ok(selector) = text.parse::<Selector>() {
                // A parsed selector round-trips.
                let formatted = selector.to_string();
                prop_assert_eq!(formatted.parse(), Ok(selector), "{:?} as {:?}", text, formatted);
            }
        }
    }
}
