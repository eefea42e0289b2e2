//! Properties of generated expressions.

use proptest::prelude::*;
use serde_json::json;
use windlass_cel::{Env, EvalErrorKind, Schema, Value};

fn schema() -> Schema {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "j": {"type": "integer"},
        "d": {"type": "number"},
        "s": {"type": "string", "maxLength": 20}, "t": {"type": "string", "maxLength": 20},
        "b": {"type": "boolean"},
        "l": {"type": "array", "maxItems": 6, "items": {"type": "integer"}},
        "ss": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 10}},
        "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
        "when": {"type": "string", "format": "date-time"},
    }, "required": ["i"]});
    Schema::from_openapi(&schema, "selfType").unwrap()
}

/// Expressions of a type, without `dyn`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Int,
    Bool,
    Text,
    Ints,
    Texts,
}

#[allow(clippy::too_many_lines)] // A grammar.
fn expression(kind: Kind, depth: u32) -> BoxedStrategy<String> {
    let leaf = match kind {
        Kind::Int => prop_oneof![
            Just("self.i".to_owned()),
            Just("self.j".to_owned()),
            (-3_i64..100).prop_map(|value| format!("({value})")),
            Just("9223372036854775807".to_owned())
        ]
        .boxed(),
        Kind::Bool => prop_oneof![
            Just("self.b".to_owned()),
            Just("true".to_owned()),
            Just("has(self.s)".to_owned()),
            Just("has(self.m.k)".to_owned())
        ]
        .boxed(),
        Kind::Text => prop_oneof![
            Just("self.s".to_owned()),
            Just("self.t".to_owned()),
            "[a-z0-9 ]{0,6}".prop_map(|text| format!("'{text}'"))
        ]
        .boxed(),
        Kind::Ints => prop_oneof![Just("self.l".to_owned()), Just("[1, 2, 3]".to_owned())].boxed(),
        Kind::Texts => prop_oneof![Just("self.ss".to_owned()), Just("['a', 'b c']".to_owned())].boxed(),
    };
    if depth == 0 {
        return leaf;
    }
    let inner = |kind| expression(kind, depth - 1);
    let compound = match kind {
        Kind::Int => prop_oneof![
            (
                inner(Kind::Int),
                prop_oneof![Just("+"), Just("-"), Just("*"), Just("/"), Just("%")],
                inner(Kind::Int)
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner(Kind::Text).prop_map(|text| format!("{text}.size()")),
            inner(Kind::Ints).prop_map(|list| format!("{list}.size()")),
            (inner(Kind::Ints), inner(Kind::Int)).prop_map(|(list, index)| format!("{list}[{index}]")),
            inner(Kind::Ints).prop_map(|list| format!("{list}.sum()")),
            (inner(Kind::Text), inner(Kind::Text)).prop_map(|(a, b)| format!("{a}.indexOf({b})")),
            (inner(Kind::Bool), inner(Kind::Int), inner(Kind::Int))
                .prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
            inner(Kind::Text).prop_map(|text| format!("int({text})")),
            inner(Kind::Int).prop_map(|value| format!("self.m[?string({value})].orValue({value})")),
        ]
        .boxed(),
        Kind::Bool => prop_oneof![
            (
                inner(Kind::Int),
                prop_oneof![Just("<"), Just("=="), Just(">=")],
                inner(Kind::Int)
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (
                inner(Kind::Bool),
                prop_oneof![Just("&&"), Just("||")],
                inner(Kind::Bool)
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (
                inner(Kind::Text),
                prop_oneof![Just("startsWith"), Just("contains"), Just("matches")],
                inner(Kind::Text)
            )
                .prop_map(|(a, function, b)| format!("{a}.{function}({b})")),
            (inner(Kind::Int), inner(Kind::Ints)).prop_map(|(a, list)| format!("({a} in {list})")),
            (inner(Kind::Ints), inner(Kind::Bool))
                .prop_map(|(list, body)| format!("{list}.all(x, x > 1 || {body})")),
            (inner(Kind::Texts), inner(Kind::Bool))
                .prop_map(|(list, body)| format!("{list}.exists(x, x == 'a' && {body})")),
            (inner(Kind::Ints), inner(Kind::Ints)).prop_map(|(a, b)| format!("sets.contains({a}, {b})")),
            (inner(Kind::Ints), inner(Kind::Ints)).prop_map(|(a, b)| format!("({a} == {b})")),
            inner(Kind::Text).prop_map(|text| format!("isIP({text}) || isQuantity({text})")),
            inner(Kind::Bool).prop_map(|value| format!("!{value}")),
        ]
        .boxed(),
        Kind::Text => prop_oneof![
            (inner(Kind::Text), inner(Kind::Text)).prop_map(|(a, b)| format!("({a} + {b})")),
            inner(Kind::Int).prop_map(|value| format!("string({value})")),
            inner(Kind::Text).prop_map(|text| format!("{text}.lowerAscii()")),
            (inner(Kind::Text), inner(Kind::Text), inner(Kind::Text))
                .prop_map(|(a, b, c)| format!("{a}.replace({b}, {c})")),
            inner(Kind::Texts).prop_map(|list| format!("{list}.join(',')")),
            (inner(Kind::Text), inner(Kind::Int)).prop_map(|(a, b)| format!("{a}.substring({b})")),
        ]
        .boxed(),
        Kind::Ints => prop_oneof![
            (inner(Kind::Ints), inner(Kind::Int))
                .prop_map(|(list, body)| format!("{list}.map(x, x + {body})")),
            (inner(Kind::Ints), inner(Kind::Bool))
                .prop_map(|(list, body)| format!("{list}.filter(x, {body})")),
            (inner(Kind::Ints), inner(Kind::Ints)).prop_map(|(a, b)| format!("({a} + {b})")),
            inner(Kind::Ints).prop_map(|list| format!("{list}.distinct()")),
            inner(Kind::Ints).prop_map(|list| format!("{list}.sort()")),
        ]
        .boxed(),
        Kind::Texts => prop_oneof![
            (inner(Kind::Texts), inner(Kind::Texts)).prop_map(|(a, b)| format!("({a} + {b})")),
            (inner(Kind::Texts), inner(Kind::Text))
                .prop_map(|(list, body)| format!("{list}.map(x, x + {body})")),
        ]
        .boxed(),
    };
    prop_oneof![1 => leaf, 3 => compound].boxed()
}

fn object() -> impl Strategy<Value = serde_json::Value> {
    (
        -5_i64..50,
        proptest::option::of("[a-z ,]{0,20}"),
        any::<bool>(),
        proptest::collection::vec(-5_i64..5, 0..6),
        proptest::collection::vec("[a-c]{0,3}", 0..4),
    )
        .prop_map(|(i, s, b, l, ss)| {
            let mut object = json!({"i": i, "j": 3, "d": 1.5, "t": "text", "b": b, "l": l, "ss": ss, "m": {"k": 1, "2": 2}});
            if let Some(s) = s {
                object["s"] = json!(s);
            }
            object
        })
}

/// Whether a part of a generated expression may fail.
fn can_fail(text: &str) -> bool {
    let failing = [
        "substring(",
        "int(",
        " / ",
        " % ",
        "9223372036854775807",
        "][",
        ")[",
        "self.l[",
        "matches(",
    ];
    failing.iter().any(|part| text.contains(part))
}

/// Whether kube-apiserver, whose numbers these are, may estimate less than it charges: it estimates the comparison of two
/// numbers as free and charges 1 (`self.i == 3` costs 3 of 2), and estimates `startsWith` by the argument, but charges by the
/// text (`self.s.startsWith('')` costs 3 of 2).
fn is_underestimated(text: &str) -> bool {
    text.contains(" == ") || text.contains("startsWith(")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A checked expression without `dyn` has no type error at run time, and costs at most its estimate.
    #[test]
    fn checked_expressions_are_sound_and_cost_at_most_their_estimate(
        text in prop_oneof![expression(Kind::Bool, 3), expression(Kind::Int, 3), expression(Kind::Text, 3)],
        object in object(),
    ) {
        let schema = schema();
        let mut env = Env::kubernetes();
        env.declare_schema("self", &schema);
        let program = match env.compile(&text) {
            Ok(program) => program,
            // A literal may be no pattern, or overflow.
            Err(issues) => {
                let text = issues.to_string();
                prop_assert!(text.contains("invalid matches argument") || issues.is_instantiation(), "{text}");
                return Ok(());
            }
        };
        let variables = [schema.value(&object).unwrap()];
        let result = program.evaluate(&variables);
        if let Err(error) = &result.value {
            prop_assert_ne!(error.kind(), EvalErrorKind::NoSuchOverload, "{} {}", text, error);
        }
        // An error counts as a value of size 1, also where the estimate knows that the size is 0.
        if !can_fail(&text) && !is_underestimated(&text) && object.get("s").is_some() {
            let estimate = program.estimated_cost();
            prop_assert!(result.cost <= estimate.max, "{text}: {} > {estimate:?}", result.cost);
        }
        prop_assert!(program.estimated_cost().min <= program.estimated_cost().max);
    }

    /// Any text is parsed, checked and evaluated without a panic.
    #[test]
    fn arbitrary_text_does_not_panic(text in "[a-z0-9 .,()\\[\\]{}?:!<>=+*/%'\"&|-]{0,40}") {
        let schema = schema();
        let mut env = Env::kubernetes();
        env.declare_schema("self", &schema);
        if let Ok(program) = env.compile(&text) {
            let object = json!({"i": 1});
            let variables = [schema.value(&object).unwrap()];
            let _ = program.evaluate(&variables).value.map(|value: Value<'_>| value.type_name().len());
        }
    }
}
