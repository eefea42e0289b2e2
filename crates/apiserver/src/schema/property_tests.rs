//! Property tests: hold for every structural schema and every object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Schema, check_lists, drop_nulls, fill_defaults, prune_object, validate};

/// Few names, so that schemas and objects overlap.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&["a", "b", "c", "d"][..]).prop_map(String::from)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..12).prop_map(Value::from),
        (-2.0_f64..4.0).prop_map(|number| json!(number)),
        any::<i64>().prop_map(Value::from),
        "[a-c]{0,4}".prop_map(Value::from),
        prop::sample::select(&["1h", "10.0.0.1", "2020-01-02T03:04:05Z", "a@b.c", "é"][..])
            .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(name(), value(), 0..4).prop_map(|fields| fields.into_iter().collect())
}

/// Bounds and formats, whether they make sense for the type or not.
fn limits() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let limit = prop_oneof![
        (-2_i64..5).prop_map(|bound| ("minimum", bound.into())),
        (0.5_f64..5.0).prop_map(|bound| ("maximum", json!(bound))),
        any::<bool>().prop_map(|flag| ("exclusiveMinimum", flag.into())),
        prop_oneof![Just(0.0), Just(0.5), Just(3.0)].prop_map(|factor| ("multipleOf", json!(factor))),
        (0_u64..4).prop_map(|length| ("minLength", length.into())),
        (0_u64..4).prop_map(|length| ("maxLength", length.into())),
        (0_u64..3).prop_map(|count| ("maxItems", count.into())),
        (0_u64..3).prop_map(|count| ("minProperties", count.into())),
        prop::sample::select(&["^[a-b]+$", "\\d", "[[:alpha:]]{1,2}"][..])
            .prop_map(|pattern| ("pattern", pattern.into())),
        prop::sample::select(&["date-time", "duration", "ipv4", "email", "int32", "uri", "other"][..])
            .prop_map(|format| ("format", format.into())),
        prop::collection::vec(scalar(), 1..3).prop_map(|choices| ("enum", choices.into())),
        Just(("nullable", true.into())),
        prop::collection::vec(name(), 1..3).prop_map(|names| ("required", names.into())),
        Just(("x-kubernetes-preserve-unknown-fields", true.into())),
        prop::sample::select(&["set", "map", "atomic"][..])
            .prop_map(|kind| ("x-kubernetes-list-type", kind.into())),
        Just(("x-kubernetes-list-map-keys", json!(["a"]))),
        Just(("x-kubernetes-embedded-resource", true.into())),
        Just((
            "anyOf",
            json!([{"required": ["a"]}, {"minLength": 2}, {"minimum": 1}])
        )),
        Just(("oneOf", json!([{"required": ["b"]}, {"maxLength": 2}]))),
        Just((
            "allOf",
            json!([{"properties": {"a": {"minimum": 1}}}, {"items": {"maxLength": 1}}])
        )),
        Just(("not", json!({"enum": ["a", 1]}))),
    ];
    prop::collection::vec(limit, 0..4)
}

fn schema() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(&["string", "integer", "number", "boolean"][..]);
    let leaf = prop_oneof![
        kind.prop_map(|kind| json!({"type": kind})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ];
    let with_limits = |schema: Value, limits: Vec<(&'static str, Value)>, default: Option<Value>| {
        let mut schema = schema;
        for (key, value) in limits {
            schema[key] = value;
        }
        if let Some(default) = default {
            schema["default"] = default;
        }
        schema
    };
    let default = || prop::option::weighted(0.4, value());
    let leaf = (leaf, limits(), default()).prop_map(move |(s, l, d)| with_limits(s, l, d));
    leaf.prop_recursive(4, 40, 4, move |inner| {
        let properties = prop::collection::btree_map(name(), inner.clone(), 0..4)
            .prop_map(|properties| json!({"type": "object", "properties": properties}));
        let map = inner
            .clone()
            .prop_map(|inner| json!({"type": "object", "additionalProperties": inner}));
        let flag = any::<bool>().prop_map(|flag| json!({"type": "object", "additionalProperties": flag}));
        let list = inner.prop_map(|inner| json!({"type": "array", "items": inner}));
        (
            prop_oneof![3 => properties, 1 => map, 1 => flag, 2 => list],
            limits(),
            default(),
        )
            .prop_map(move |(s, l, d)| with_limits(s, l, d))
    })
}

/// A schema with an object at the root, like a CRD's.
fn root() -> impl Strategy<Value = Value> {
    (prop::collection::btree_map(name(), schema(), 0..5), limits()).prop_map(|(properties, limits)| {
        let mut root = json!({"type": "object", "properties": properties});
        for (key, value) in limits {
            root[key] = value;
        }
        root
    })
}

/// Defaulting is idempotent only if defaults are complete by their own schema, as a CRD's must be.
fn prune_and_default(schema: &Schema, object: &mut Map<String, Value>) {
    prune_object(schema.view(), object);
    drop_nulls(schema.view(), object);
    fill_defaults(schema.view(), object);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pruning_is_idempotent(document in root(), object in object()) {
        let schema = Schema::from_crd(&document).expect("structural");
        let mut once = object;
        prune_object(schema.view(), &mut once);
        let mut twice = once.clone();
        prop_assert_eq!(prune_object(schema.view(), &mut twice), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_is_idempotent(document in root(), object in object()) {
        let schema = Schema::from_crd(&document).expect("structural");
        let mut once = object;
        fill_defaults(schema.view(), &mut once);
        let mut twice = once.clone();
        fill_defaults(schema.view(), &mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn validation_is_the_same_after_storing_and_reading(document in root(), object in object()) {
        let schema = Schema::from_crd(&document).expect("structural");
        let mut object = object;
        prune_and_default(&schema, &mut object);
        let before = validate(schema.view(), &object.clone().into(), None, "");
        let text = Value::Object(object.clone()).to_string();
        let mut read: Map<String, Value> = serde_json::from_str(&text).expect("JSON");
        let after = validate(schema.view(), &read.clone().into(), None, "");
        prop_assert_eq!(&before, &after);
        // A default may contain what its schema prunes; a CRD with such a default is rejected.
        if before.is_empty() && !text.contains("null") {
            prune_and_default(&schema, &mut read);
            let again = read.clone();
            prune_and_default(&schema, &mut read);
            prop_assert_eq!(again, read);
        }
    }

    #[test]
    fn unchanged_objects_are_never_rejected(document in root(), object in object()) {
        let schema = Schema::from_crd(&document).expect("structural");
        let value = Value::Object(object);
        prop_assert_eq!(validate(schema.view(), &value, Some(&value), ""), Vec::new());
    }

    #[test]
    fn no_schema_or_object_causes_a_panic(document in value(), object in object(), other in object()) {
        if let Ok(schema) = Schema::from_crd(&document) {
            let mut object = object;
            prune_and_default(&schema, &mut object);
            let (new, old) = (Value::Object(object.clone()), Value::Object(other));
            validate(schema.view(), &new, Some(&old), "spec");
            check_lists(schema.view(), &object);
        }
    }
}
