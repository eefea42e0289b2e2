//! Laws that hold for every schema, every object and every configuration, however odd.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    Applied, Managed, OnConflict, Set, Shape, Versions, Writer, compare, extract, merge::merge, shape::Form,
};
use crate::schema::Schema;

pub(super) const VERSION: &str = "example.com/v1";

/// What a place in an object looks like.
#[derive(Clone, Debug)]
enum Kind {
    Text,
    Number,
    /// A list of texts, owned as one or by item.
    Words {
        set: bool,
    },
    /// A list of objects known by `k` and, where they say it, `p`, which is 1 where they do not.
    Items(Box<[(String, Kind)]>),
    Struct {
        atomic: bool,
        fields: Box<[(String, Kind)]>,
    },
    Map {
        atomic: bool,
        values: Box<Kind>,
    },
    Unknown,
}

impl Kind {
    fn schema(&self) -> Value {
        let fields = |fields: &[(String, Kind)]| -> Map<String, Value> {
            fields
                .iter()
                .map(|(name, kind)| (name.clone(), kind.schema()))
                .collect()
        };
        let map_type = |atomic: bool| if atomic { "atomic" } else { "granular" };
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Number => json!({"type": "integer"}),
            Self::Words { set } => {
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
            Self::Words { set: false } => prop::collection::vec("[ab]", 0..3).prop_map(Value::from).boxed(),
            Self::Words { set: true } => prop::collection::btree_set("[abc]", 1..4)
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

/// Some of the fields of a struct.
fn some_of(fields: &[(String, Kind)]) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, kind)| (Just(name.clone()), prop::option::of(kind.value())))
        .collect();
    fields
        .prop_map(|fields| {
            let said = |(name, value): (String, Option<Value>)| Some((name, value?));
            fields.into_iter().filter_map(said).collect()
        })
        .boxed()
}

fn fields(inner: impl Strategy<Value = Kind>) -> impl Strategy<Value = Box<[(String, Kind)]>> {
    prop::collection::btree_map("[a-d]", inner, 1..4).prop_map(|fields| fields.into_iter().collect())
}

fn kind() -> impl Strategy<Value = Kind> {
    let leaf = prop_oneof![
        Just(Kind::Text),
        Just(Kind::Number),
        any::<bool>().prop_map(|set| Kind::Words { set }),
        Just(Kind::Unknown),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(Kind::Items),
            (any::<bool>(), fields(inner.clone()))
                .prop_map(|(atomic, fields)| Kind::Struct { atomic, fields }),
            (any::<bool>(), inner).prop_map(|(atomic, values)| Kind::Map {
                atomic,
                values: Box::new(values),
            }),
        ]
    })
}

/// A schema and some configurations of it.
fn configs<const N: usize>() -> impl Strategy<Value = (Kinds, [Value; N])> {
    fields(kind()).prop_flat_map(|fields| {
        let spec = Kind::Struct {
            atomic: false,
            fields,
        };
        let schema = json!({"type": "object", "properties": {"spec": spec.schema()}});
        let kinds = Kinds::of(&schema);
        let config = spec.value().prop_map(
            |spec| json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}, "spec": spec}),
        );
        (Just(kinds), prop::collection::vec(config, N))
            .prop_map(|(kinds, configs)| (kinds, configs.try_into().expect("as many as asked for")))
    })
}

/// One version of one kind.
#[derive(Clone, Debug)]
pub(super) struct Kinds(Schema);

impl Versions for Kinds {
    fn shape<'a>(&'a self, version: &str) -> Option<Shape<'a>> {
        (version == VERSION).then(|| Shape::of_resource(Some(self.0.view()), true))
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        (version == VERSION).then(|| object.clone())
    }

    fn reset(&self, _: &str) -> Set<'static> {
        Set::default()
    }
}

/// An object and its account.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) object: Value,
    pub(super) account: String,
}

impl Kinds {
    fn root(&self) -> Shape<'_> {
        self.shape(VERSION).expect("the only one")
    }

    pub(super) fn of(schema: &Value) -> Self {
        Self(Schema::of_crd(schema).expect("a schema"))
    }

    pub(super) fn nothing() -> State {
        State {
            object: json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}}),
            account: String::new(),
        }
    }

    pub(super) fn writer<'a>(&'a self, name: &'a str) -> Writer<'a, Self> {
        Writer {
            name,
            version: VERSION,
            subresource: "",
            now: "2020-01-01T00:00:00Z",
            versions: self,
        }
    }

    pub(super) fn apply(&self, state: &State, name: &str, config: &Value) -> State {
        let managed = Managed::read(&state.account);
        let applied = self
            .writer(name)
            .apply(&state.object, config, managed, &OnConflict::Force);
        let Applied { object, managed } = applied.expect("it fits, and takes what it wants");
        State {
            object: without_nulls(object.unwrap_or_else(|| state.object.clone())),
            account: managed.write(),
        }
    }

    fn update(&self, state: &State, name: &str, object: &Value) -> State {
        let managed = self
            .writer(name)
            .update(&state.object, object, || Managed::read(&state.account));
        let managed = managed.expect("its items can be told apart");
        State {
            object: object.clone(),
            account: managed.map_or_else(|| state.account.clone(), Managed::write),
        }
    }

    /// With lists that are owned by item in one order: which it is depends on who came first.
    fn sorted(&self, state: State) -> State {
        State {
            object: sorted(self.root(), state.object),
            ..state
        }
    }
}

/// What the kinds' decoders make of a field that was emptied.
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
    match (shape.form(&value), value) {
        (Form::Map, Value::Object(fields)) => {
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
        (Form::List(_), Value::Array(items)) => {
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

/// Divides a configuration between two appliers: no field is owned by both.
fn divided(shape: Shape<'_>, value: &Value, coins: &mut impl Iterator<Item = bool>) -> [Option<Value>; 2] {
    let whole = |value: &Value, first: bool| {
        let value = Some(value.clone());
        if first { [value, None] } else { [None, value] }
    };
    match (shape.form(value), value) {
        (Form::Map, Value::Object(fields)) if !fields.is_empty() => {
            let mut parts = [Map::new(), Map::new()];
            for (name, value) in fields {
                let field = shape.field(name);
                let inner = field.map_or(Shape::Deduced, |field| field.shape);
                // A name that the schema does not know is owned itself, not only what is under it.
                let divided = if field.is_some_and(|field| field.named) {
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
        (Form::List(_), Value::Array(items)) if !items.is_empty() => {
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

fn set_of(json: &str) -> Set<'_> {
    serde_json::from_str(json).expect("written by this crate")
}

fn text(set: &Set<'_>) -> String {
    let mut json = Vec::new();
    set.write(&mut json);
    String::from_utf8(json).expect("JSON is text")
}

proptest! {
    #[test]
    fn apply_twice_is_once((kinds, [before, config]) in configs()) {
        let state = kinds.apply(&Kinds::nothing(), "other", &before);
        let once = kinds.apply(&state, "one", &config);
        let twice = kinds.apply(&once, "one", &config);
        prop_assert_eq!(&once, &twice);
    }

    #[test]
    fn what_is_told_to_be_repeated_changes_nothing((kinds, [before, config]) in configs()) {
        let state = kinds.apply(&Kinds::nothing(), "other", &before);
        let once = kinds.apply(&state, "one", &config);
        // Another one's configuration, and one's own.
        for (state, config) in [(&once, &config), (&once, &before), (&state, &config)] {
            if kinds.writer("one").is_repeated(&state.object, config, &state.account) {
                prop_assert_eq!(&kinds.apply(state, "one", config), state);
            }
        }
    }

    #[test]
    fn the_short_way_to_a_new_objects_account_leads_where_the_long_one_does((kinds, [blank, new]) in configs()) {
        let writer = kinds.writer("one");
        let empty = Kinds::nothing().object;
        // Without metadata: what names the object is new, and still nobody's.
        let bare = json!({"apiVersion": VERSION, "kind": "X"});
        for blank in [&bare, &empty, &blank] {
            let short = writer.account_for_new(blank, &new);
            prop_assert_eq!(short, writer.create(blank, &new).map(Managed::write));
        }
    }

    #[test]
    fn what_was_applied_is_there((kinds, [before, config]) in configs()) {
        let state = kinds.apply(&Kinds::nothing(), "other", &before);
        let state = kinds.apply(&state, "one", &config);
        let mut missing = compare(kinds.root(), &state.object, &merge(kinds.root(), &state.object, &config))
            .map(|comparison| text(&comparison.changed));
        // An empty map or list that met a full one leaves no trace.
        prop_assert_eq!(missing.take(), Some("{}".to_owned()));
    }

    #[test]
    fn disjoint_managers_commute(
        (kinds, [config]) in configs(),
        coins in prop::collection::vec(any::<bool>(), 32),
    ) {
        let [first, second] = divided(kinds.root().field("spec").expect("declared").shape, &config["spec"], &mut coins.into_iter());
        let (first, second) = (with_spec(first), with_spec(second));
        let one = kinds.apply(&kinds.apply(&Kinds::nothing(), "one", &first), "two", &second);
        let other = kinds.apply(&kinds.apply(&Kinds::nothing(), "two", &second), "one", &first);
        prop_assert_eq!(kinds.sorted(one), kinds.sorted(other));
    }

    #[test]
    fn removing_what_you_own_leaves_what_others_own(
        (kinds, [config]) in configs(),
        coins in prop::collection::vec(any::<bool>(), 32),
    ) {
        let [first, second] = divided(kinds.root().field("spec").expect("declared").shape, &config["spec"], &mut coins.into_iter());
        let (first, second) = (with_spec(first), with_spec(second));
        let alone = kinds.apply(&Kinds::nothing(), "one", &first);
        let both = kinds.apply(&alone, "two", &second);
        let left = kinds.apply(&both, "two", &with_spec(None));
        prop_assert_eq!(kinds.sorted(left), kinds.sorted(alone));
    }

    #[test]
    fn who_owns_together_keeps_what_the_other_lets_go((kinds, [config]) in configs()) {
        let one = kinds.apply(&Kinds::nothing(), "one", &config);
        let both = kinds.apply(&one, "two", &config);
        let left = kinds.apply(&both, "two", &with_spec(None));
        prop_assert_eq!(&left.object, &one.object);
        prop_assert_eq!(left.account, one.account);
    }

    #[test]
    fn an_update_owns_what_it_changed_and_nobody_else_does((kinds, [before, after]) in configs()) {
        let applied = kinds.apply(&Kinds::nothing(), "one", &before);
        let updated = kinds.update(&applied, "editor", &after);
        let comparison = compare(kinds.root(), &applied.object, &after).expect("its items can be told apart");
        let managed = Managed::read(&updated.account);
        for (name, fields) in managed.fields() {
            if name == "editor" {
                prop_assert_eq!(text(&fields), text(&comparison.changed));
            } else {
                prop_assert_eq!(text(&fields.intersection(&comparison.changed)), "{}");
                prop_assert_eq!(text(&fields.intersection(&comparison.removed)), "{}");
            }
        }
        prop_assert_eq!(kinds.update(&updated, "idler", &after), updated);
    }

    #[test]
    fn merging_removes_nothing_and_comparing_finds_what_it_did((kinds, [object, config]) in configs()) {
        let shape = kinds.root();
        let merged = merge(shape, &object, &config);
        let comparison = compare(shape, &object, &merged).expect("its items can be told apart");
        prop_assert_eq!(merge(shape, &merged, &config), merged.clone());
        let same = compare(shape, &merged, &merged).expect("its items can be told apart");
        prop_assert!(same.is_empty());
        // What was removed made place for something of another kind under the same name.
        if !object.to_string().contains('u') && !config.to_string().contains('u') {
            prop_assert_eq!(text(&comparison.removed), "{}");
        }
    }

    #[test]
    fn sets_are_sets((kinds, [a, b]) in configs()) {
        let (a, b) = (extract(kinds.root(), &a).expect("fits"), extract(kinds.root(), &b).expect("fits"));
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
