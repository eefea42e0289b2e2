//! Property tests of managed fields, with generated schemas, objects and configurations.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    Applied, FieldSet, Managed, OnConflict, Shape, Updater, Versions, compare, extract, merge::merge,
    shape::Granularity,
};
use crate::schema::Schema;

pub(super) const VERSION: &str = "example.com/v1";

/// A generated schema.
#[derive(Clone, Debug)]
enum GeneratedSchema {
    Text,
    Number,
    /// A list of strings, atomic or a set.
    Strings {
        set: bool,
    },
    /// A list of objects with the keys `k` and `p`, whose default is 1.
    Items(Box<[(String, GeneratedSchema)]>),
    Struct {
        atomic: bool,
        fields: Box<[(String, GeneratedSchema)]>,
    },
    Map {
        atomic: bool,
        values: Box<GeneratedSchema>,
    },
    Unknown,
}

impl GeneratedSchema {
    fn schema(&self) -> Value {
        let fields = |fields: &[(String, GeneratedSchema)]| -> Map<String, Value> {
            fields
                .iter()
                .map(|(name, kind)| (name.clone(), kind.schema()))
                .collect()
        };
        let map_type = |atomic: bool| if atomic { "atomic" } else { "granular" };
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Number => json!({"type": "integer"}),
            Self::Strings { set } => {
                let kind = if *set { "set" } else { "atomic" };
                json!({"type": "array", "x-kubernetes-list-type": kind, "items": {"type": "string"}})
            }
            Self::Items(inner) => {
                let mut properties = fields(inner);
                properties.insert("k".into(), json!({"type": "string"}));
                properties.insert("p".into(), json!({"type": "integer", "default": 1}));
                json!({
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                    "items": {"type": "object", "properties": properties},
                })
            }
            Self::Struct {
                atomic,
                fields: inner,
            } => json!({
                "type": "object", "properties": fields(inner), "x-kubernetes-map-type": map_type(*atomic),
            }),
            Self::Map { atomic, values } => json!({
                "type": "object", "additionalProperties": values.schema(), "x-kubernetes-map-type": map_type(*atomic),
            }),
            Self::Unknown => json!({"x-kubernetes-preserve-unknown-fields": true}),
        }
    }

    fn value(&self) -> BoxedStrategy<Value> {
        match self {
            Self::Text => "[ab]{0,2}".prop_map(Value::from).boxed(),
            Self::Number => (0_i64..3).prop_map(Value::from).boxed(),
            Self::Strings { set: false } => prop::collection::vec("[ab]", 0..3).prop_map(Value::from).boxed(),
            Self::Strings { set: true } => prop::collection::btree_set("[abc]", 1..4)
                .prop_map(|words| words.into_iter().collect::<Vec<_>>())
                .prop_shuffle()
                .prop_map(Value::from)
                .boxed(),
            Self::Items(fields) => {
                let keys = prop::collection::btree_set(("[xyz]", prop::option::of(2_i64..4)), 1..4);
                let fields = fields.to_vec();
                keys.prop_map(|keys| keys.into_iter().collect::<Vec<_>>())
                    .prop_shuffle()
                    .prop_flat_map(move |keys| {
                        let items: Vec<_> = keys
                            .into_iter()
                            .map(|(k, p)| {
                                some_of(&fields).prop_map(move |mut item| {
                                    item.insert("k".into(), k.clone().into());
                                    if let Some(p) = p {
                                        item.insert("p".into(), p.into());
                                    }
                                    Value::Object(item)
                                })
                            })
                            .collect();
                        items.prop_map(Value::from)
                    })
                    .boxed()
            }
            Self::Struct { fields, .. } => some_of(fields).prop_map(Value::Object).boxed(),
            Self::Map { values, .. } => prop::collection::btree_map("[mno]", values.value(), 1..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
                .boxed(),
            Self::Unknown => prop_oneof![
                Just(json!({"u": 1, "v": {"w": [1, 2]}})),
                Just(json!({"u": {"x": "y"}})),
                Just(json!([1])),
                Just(json!("text")),
            ]
            .boxed(),
        }
    }
}

/// Generates values for some of the fields.
fn some_of(fields: &[(String, GeneratedSchema)]) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, kind)| (Just(name.clone()), prop::option::of(kind.value())))
        .collect();
    fields
        .prop_map(|fields| {
            let present = |(name, value): (String, Option<Value>)| Some((name, value?));
            fields.into_iter().filter_map(present).collect()
        })
        .boxed()
}

fn fields(
    inner: impl Strategy<Value = GeneratedSchema>,
) -> impl Strategy<Value = Box<[(String, GeneratedSchema)]>> {
    prop::collection::btree_map("[a-d]", inner, 1..4).prop_map(|fields| fields.into_iter().collect())
}

fn kind() -> impl Strategy<Value = GeneratedSchema> {
    let leaf = prop_oneof![
        Just(GeneratedSchema::Text),
        Just(GeneratedSchema::Number),
        any::<bool>().prop_map(|set| GeneratedSchema::Strings { set }),
        Just(GeneratedSchema::Unknown),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(GeneratedSchema::Items),
            (any::<bool>(), fields(inner.clone()))
                .prop_map(|(atomic, fields)| GeneratedSchema::Struct { atomic, fields }),
            (any::<bool>(), inner).prop_map(|(atomic, values)| GeneratedSchema::Map {
                atomic,
                values: Box::new(values),
            }),
        ]
    })
}

/// Generates a schema and `N` configurations of it.
fn configs<const N: usize>() -> impl Strategy<Value = (TestVersions, [Value; N])> {
    fields(kind()).prop_flat_map(|fields| {
        let spec = GeneratedSchema::Struct {
            atomic: false,
            fields,
        };
        let schema = json!({"type": "object", "properties": {"spec": spec.schema()}});
        let versions = TestVersions::of(&schema);
        let config = spec.value().prop_map(
            |spec| json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}, "spec": spec}),
        );
        (Just(versions), prop::collection::vec(config, N))
            .prop_map(|(versions, configs)| (versions, configs.try_into().expect("N configurations")))
    })
}

/// One version of one kind.
#[derive(Clone, Debug)]
pub(super) struct TestVersions(Schema);

impl Versions for TestVersions {
    fn shape<'a>(&'a self, version: &str) -> Option<Shape<'a>> {
        (version == VERSION).then(|| Shape::for_resource(Some(self.0.view()), true))
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        (version == VERSION).then(|| object.clone())
    }

    fn reset_fields(&self, _: &str) -> FieldSet<'static> {
        FieldSet::default()
    }
}

/// An object and its managed fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) object: Value,
    pub(super) managed_fields: String,
}

impl TestVersions {
    fn root(&self) -> Shape<'_> {
        self.shape(VERSION).expect("the only version")
    }

    pub(super) fn of(schema: &Value) -> Self {
        Self(Schema::from_crd(schema).expect("a schema"))
    }

    pub(super) fn empty_state() -> State {
        State {
            object: json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}}),
            managed_fields: String::new(),
        }
    }

    pub(super) fn updater<'a>(&'a self, manager_name: &'a str) -> Updater<'a, Self> {
        Updater {
            manager_name,
            version: VERSION,
            subresource: "",
            now: "2020-01-01T00:00:00Z",
            versions: self,
        }
    }

    pub(super) fn apply(&self, state: &State, name: &str, config: &Value) -> State {
        let managed = Managed::parse(&state.managed_fields);
        let applied = self
            .updater(name)
            .apply(&state.object, config, managed, &OnConflict::Force);
        let Applied { object, managed } = applied.expect("matches its schema and is forced");
        State {
            object: without_nulls(object.unwrap_or_else(|| state.object.clone())),
            managed_fields: managed.into_json(),
        }
    }

    fn update(&self, state: &State, name: &str, object: &Value) -> State {
        let managed = self
            .updater(name)
            .update(&state.object, object, || Managed::parse(&state.managed_fields));
        let managed = managed.expect("its items have distinct keys");
        State {
            object: object.clone(),
            managed_fields: managed.map_or_else(|| state.managed_fields.clone(), Managed::into_json),
        }
    }

    /// Sorts lists that are owned by item, whose order depends on the order of the applies.
    fn sorted(&self, state: State) -> State {
        State {
            object: sorted(self.root(), state.object),
            ..state
        }
    }
}

/// Drops null fields, as decoding does with emptied ones.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn sorted(shape: Shape<'_>, value: Value) -> Value {
    match (shape.granularity(&value), value) {
        (Granularity::Map, Value::Object(fields)) => {
            let inner = |name: &str| shape.field(name).map_or(Shape::Deduced, |field| field.shape);
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(name, value)| {
                        let value = sorted(inner(&name), value);
                        (name, value)
                    })
                    .collect(),
            )
        }
        (Granularity::List(_), Value::Array(items)) => {
            let mut items: Vec<_> = items
                .into_iter()
                .map(|item| sorted(shape.items(), item))
                .collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        (_, other) => other,
    }
}

/// Divides a configuration between two appliers, so that no field is owned by both.
fn divided(shape: Shape<'_>, value: &Value, coins: &mut impl Iterator<Item = bool>) -> [Option<Value>; 2] {
    let whole = |value: &Value, first: bool| {
        let value = Some(value.clone());
        if first { [value, None] } else { [None, value] }
    };
    match (shape.granularity(value), value) {
        (Granularity::Map, Value::Object(fields)) if !fields.is_empty() => {
            let mut parts = [Map::new(), Map::new()];
            for (name, value) in fields {
                let field = shape.field(name);
                let inner = field.map_or(Shape::Deduced, |field| field.shape);
                // A field that the schema does not declare is itself owned, not only its children.
                let divided = if field.is_some_and(|field| field.declared) {
                    divided(inner, value, coins)
                } else {
                    whole(value, coins.next().unwrap_or(true))
                };
                for (part, value) in parts.iter_mut().zip(divided) {
                    part.extend(value.map(|value| (name.clone(), value)));
                }
            }
            parts.map(|part| (!part.is_empty()).then_some(Value::Object(part)))
        }
        (Granularity::List(_), Value::Array(items)) if !items.is_empty() => {
            let mut parts = [Vec::new(), Vec::new()];
            for item in items {
                parts[usize::from(coins.next().unwrap_or(true))].push(item.clone());
            }
            parts.map(|part| (!part.is_empty()).then_some(Value::Array(part)))
        }
        (_, value) => whole(value, coins.next().unwrap_or(true)),
    }
}

fn with_spec(spec: Option<Value>) -> Value {
    let mut config = json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}});
    if let Some(spec) = spec {
        config["spec"] = spec;
    }
    config
}

fn set_of(json: &str) -> FieldSet<'_> {
    serde_json::from_str(json).expect("written by this crate")
}

fn text(set: &FieldSet<'_>) -> String {
    let mut json = Vec::new();
    set.write(&mut json);
    String::from_utf8(json).expect("JSON is text")
}

proptest! {
    #[test]
    fn apply_is_idempotent((versions, [before, config]) in configs()) {
        let state = versions.apply(&TestVersions::empty_state(), "other", &before);
        let once = versions.apply(&state, "one", &config);
        let twice = versions.apply(&once, "one", &config);
        prop_assert_eq!(&once, &twice);
    }

    #[test]
    fn noop_apply_changes_nothing((versions, [before, config]) in configs()) {
        let state = versions.apply(&TestVersions::empty_state(), "other", &before);
        let once = versions.apply(&state, "one", &config);
        // The manager's own configuration, and another manager's.
        for (state, config) in [(&once, &config), (&once, &before), (&state, &config)] {
            if versions.updater("one").is_noop_apply(&state.object, config, &state.managed_fields) {
                prop_assert_eq!(&versions.apply(state, "one", config), state);
            }
        }
    }

    #[test]
    fn managed_fields_of_new_object_equal_those_of_comparison((versions, [blank, new]) in configs()) {
        let writer = versions.updater("one");
        let empty = TestVersions::empty_state().object;
        // Without metadata, the fields that identify the object are new, and still have no owner.
        let bare = json!({"apiVersion": VERSION, "kind": "X"});
        for blank in [&bare, &empty, &blank] {
            let short = writer.managed_fields_of_new(blank, &new);
            prop_assert_eq!(short, writer.create(blank, &new).map(Managed::into_json));
        }
    }

    #[test]
    fn applied_object_contains_the_configuration((versions, [before, config]) in configs()) {
        let state = versions.apply(&TestVersions::empty_state(), "other", &before);
        let state = versions.apply(&state, "one", &config);
        let mut missing = compare(versions.root(), &state.object, &merge(versions.root(), &state.object, &config))
            .map(|comparison| text(&comparison.changed));
        // An empty map or list merged into a non-empty one leaves no trace.
        prop_assert_eq!(missing.take(), Some("{}".to_owned()));
    }

    #[test]
    fn disjoint_managers_commute(
        (versions, [config]) in configs(),
        coins in prop::collection::vec(any::<bool>(), 32),
    ) {
        let [first, second] = divided(versions.root().field("spec").expect("declared").shape, &config["spec"], &mut coins.into_iter());
        let (first, second) = (with_spec(first), with_spec(second));
        let one = versions.apply(&versions.apply(&TestVersions::empty_state(), "one", &first), "two", &second);
        let other = versions.apply(&versions.apply(&TestVersions::empty_state(), "two", &second), "one", &first);
        prop_assert_eq!(versions.sorted(one), versions.sorted(other));
    }

    #[test]
    fn empty_apply_removes_own_fields_and_keeps_those_of_others(
        (versions, [config]) in configs(),
        coins in prop::collection::vec(any::<bool>(), 32),
    ) {
        let [first, second] = divided(versions.root().field("spec").expect("declared").shape, &config["spec"], &mut coins.into_iter());
        let (first, second) = (with_spec(first), with_spec(second));
        let alone = versions.apply(&TestVersions::empty_state(), "one", &first);
        let both = versions.apply(&alone, "two", &second);
        let left = versions.apply(&both, "two", &with_spec(None));
        prop_assert_eq!(versions.sorted(left), versions.sorted(alone));
    }

    #[test]
    fn shared_fields_stay_when_one_manager_gives_them_up((versions, [config]) in configs()) {
        let one = versions.apply(&TestVersions::empty_state(), "one", &config);
        let both = versions.apply(&one, "two", &config);
        let left = versions.apply(&both, "two", &with_spec(None));
        prop_assert_eq!(&left.object, &one.object);
        prop_assert_eq!(left.managed_fields, one.managed_fields);
    }

    #[test]
    fn updater_alone_owns_the_changed_fields((versions, [before, after]) in configs()) {
        let applied = versions.apply(&TestVersions::empty_state(), "one", &before);
        let updated = versions.update(&applied, "editor", &after);
        let comparison = compare(versions.root(), &applied.object, &after).expect("its items have distinct keys");
        let managed = Managed::parse(&updated.managed_fields);
        for (name, fields) in managed.fields() {
            if name == "editor" {
                prop_assert_eq!(text(&fields), text(&comparison.changed));
            } else {
                prop_assert_eq!(text(&fields.intersection(&comparison.changed)), "{}");
                prop_assert_eq!(text(&fields.intersection(&comparison.removed)), "{}");
            }
        }
        prop_assert_eq!(versions.update(&updated, "idler", &after), updated);
    }

    #[test]
    fn merge_is_idempotent_and_removes_nothing((versions, [object, config]) in configs()) {
        let shape = versions.root();
        let merged = merge(shape, &object, &config);
        let comparison = compare(shape, &object, &merged).expect("its items have distinct keys");
        prop_assert_eq!(merge(shape, &merged, &config), merged.clone());
        let same = compare(shape, &merged, &merged).expect("its items have distinct keys");
        prop_assert!(same.is_empty());
        // Fields are removed only where a value of unknown schema is replaced by one of another type.
        if !object.to_string().contains('u') && !config.to_string().contains('u') {
            prop_assert_eq!(text(&comparison.removed), "{}");
        }
    }

    #[test]
    fn field_sets_obey_set_algebra((versions, [a, b]) in configs()) {
        let (a, b) = (extract(versions.root(), &a).expect("valid"), extract(versions.root(), &b).expect("valid"));
        let json = text(&a);
        prop_assert_eq!(&set_of(&json), &a);
        let both = a.clone().union(b.clone());
        prop_assert_eq!(&both, &b.clone().union(a.clone()));
        prop_assert_eq!(&both.intersection(&a), &a);
        prop_assert!(both.contains(&a) && both.contains(&b));
        let mut rest = both.clone();
        rest.subtract(&a);
        prop_assert!(rest.intersection(&a).is_empty());
        prop_assert_eq!(rest.union(a), both);
    }
}
