//! Hostile expressions end with an error, on an ordinary stack and in bounded time.

use std::{
    collections::HashSet,
    fmt::Write,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::ThreadId,
};

use serde_json::{Value as Json, json};
use windlass_cel::{
    Budget, CompileBudget, Env, EvalError, HostObject, Limits, Map, Program, Type, Value,
    rules::{Rules, Validation},
};

/// Compiles, and evaluates if it compiles.
fn outcome(text: &str) -> String {
    let mut env = Env::kubernetes();
    env.declare("d", Type::Dyn);
    match env.compile(text) {
        Ok(program) => match program.evaluate(&[Value::Int(1)]).value {
            Ok(_) => "a value".to_owned(),
            Err(error) => error.to_string(),
        },
        Err(issues) => issues.to_string(),
    }
}

#[test]
fn nesting_has_the_limit_of_the_server() {
    let nested = |count: usize| format!("{}1{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(outcome(&nested(249)), "a value");
    assert_eq!(
        outcome(&nested(250)),
        "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
    );
    assert_eq!(outcome(&format!("1{}", " + 1".repeat(250))), "a value");
    assert_eq!(
        outcome(&format!("1{}", " + 1".repeat(251))),
        "ERROR: <input>:-1:0: max recursion depth exceeded"
    );
    assert_eq!(outcome(&format!("{}true", "!".repeat(50_000))), "a value");
}

#[test]
fn deep_expressions_are_refused_before_they_recurse() {
    for text in [
        "(".repeat(90_000),
        "[".repeat(90_000),
        "{".repeat(90_000),
        "d.".repeat(45_000),
        "d[".repeat(45_000),
        format!("d{}", ".a".repeat(40_000)),
        format!("d{}", ".map(x, x)".repeat(9_000)),
        format!("1{}", "-1".repeat(40_000)),
        format!("true{}", " ? true : true".repeat(7_000)),
        "-".repeat(90_000),
        "a".repeat(100_001),
    ] {
        assert!(outcome(&text).starts_with("ERROR"), "{}", &text[..20]);
    }
}

/// The deepest trees that are accepted are checked and evaluated on the stack of a test, which is an ordinary one.
#[test]
fn deepest_trees_fit_the_stack() {
    for (open, close) in [
        ("[1].map(x, ", ")"),
        ("[1].all(x, x > 0 && ", ")"),
        ("[1].filter(x, true).exists(y, true || ", ")"),
        ("[", "]"),
        ("{'a': ", "}"),
        ("dyn(", ")"),
        ("-(", ")"),
        ("(1 + ", ")"),
        ("d.a[", "]"),
        ("true ? 1 : (", ")"),
        ("optional.of(1).optMap(x, ", ")"),
        ("[1].transformMap(i, v, ", ")"),
        ("[3, 1].sortBy(x, ", ".size())"),
    ] {
        for count in [4, 8, 12, 15, 16, 17, 24, 40, 80, 120, 160, 200, 249] {
            let text = format!("{}1{}", open.repeat(count), close.repeat(count));
            let _ = outcome(&text);
        }
    }
}

#[test]
fn chains_fit_the_stack() {
    for (start, next) in [
        ("1", " + 1"),
        ("1", " * 1 - 1"),
        ("d", ".a"),
        ("d", "[0].b"),
        ("true", " == true"),
        ("[1]", ".map(x, x)"),
        ("'a'", ".trim()"),
    ] {
        for count in [5, 10, 15, 20, 21, 40, 100, 250] {
            let _ = outcome(&format!("{start}{}", next.repeat(count)));
        }
    }
}

#[test]
fn macros_that_copy_do_not_explode() {
    let chain = format!("optional.of(1){}", ".optMap(x, x + 1)".repeat(60));
    assert!(outcome(&chain).starts_with("ERROR"), "{}", outcome(&chain));
}

#[test]
fn types_that_double_are_refused() {
    let chain = format!("[1]{}", ".map(x, {x: x})".repeat(60));
    assert!(outcome(&chain).contains("too large"), "{}", outcome(&chain));
}

#[test]
fn concatenated_lists_are_not_copied() {
    let mut env = Env::kubernetes();
    env.declare("l", Type::list(Type::Int));
    let program = env
        .compile("lists.range(5000).map(i, (l + l + l + l)[0]).size() == 5000")
        .unwrap();
    let variables = [Value::list((0..500_000).map(Value::Int).collect())];
    let started = std::time::Instant::now();
    assert!(matches!(
        program.evaluate(&variables).value,
        Ok(Value::Bool(true))
    ));
    // Copies would be ten billion elements.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn indexes_of_joined_lists_are_those_of_the_parts() {
    let env = Env::kubernetes();
    let text = "lists.range(100).map(i, lists.range(i)).flatten() == lists.range(100).map(i, lists.range(i)).flatten() \
        && (lists.range(40) + lists.range(50) + lists.range(60)).size() == 150 \
        && (lists.range(40) + (lists.range(50) + lists.range(60)))[95] == 5";
    assert!(matches!(
        env.compile(text).unwrap().evaluate(&[]).value,
        Ok(Value::Bool(true))
    ));
}

/// The error of an expression with the variables `d`, of any type, and `s`, a text.
fn error_within(text: &str, limits: &Limits, s: &str) -> String {
    let mut env = Env::kubernetes();
    env.declare("d", Type::Dyn);
    env.declare("s", Type::String);
    let program = env.compile(text).unwrap_or_else(|issues| panic!("{issues}"));
    let variables = [Value::Int(1), Value::text(s)];
    let evaluation = program.evaluate_with(&variables, limits);
    evaluation
        .value
        .map_or_else(|error| error.to_string(), |_| "a value".to_owned())
}

fn error_of(text: &str) -> String {
    error_within(text, &Limits::default(), "")
}

const TOO_LARGE: &str = "operation cancelled: actual cost limit exceeded";
const TOO_LONG: &str = "operation interrupted";

/// `[[1]].all(a0, [a0 + a0].all(a1, … then))`: the last variable has 2^`count` elements.
fn doubled(count: usize, then: &str) -> String {
    let mut text = "[[1]].all(a0, ".to_owned();
    for index in 0..count {
        let _ = write!(text, "[a{index} + a{index}].all(a{}, ", index + 1);
    }
    text + &then.replace('Z', &format!("a{count}")) + &")".repeat(count + 1)
}

#[test]
fn lists_that_double_have_a_greatest_length() {
    for count in [34, 60] {
        assert_eq!(error_of(&doubled(count, "Z.size() > 0")), TOO_LARGE);
        assert_eq!(error_of(&doubled(count, "'%s'.format([Z]) != ''")), TOO_LARGE);
    }
    assert_eq!(error_of(&doubled(23, "Z.size() == 8388608")), "a value");
}

/// Eight million elements that take some kilobytes: what copies them is refused before it does.
#[test]
fn copies_of_shared_lists_are_counted_before_they_are_made() {
    for copy in [
        "'%s'.format([[Z, Z, Z]]) != ''",
        "Z.reverse().size() > 0",
        "Z.slice(0, 8000000).size() > 0",
        "[Z].flatten().size() > 0",
        "dyn(Z).sort().size() > 0",
        "Z.distinct().size() > 0",
        "[[Z], [Z], [Z]].all(l, l.flatten().size() > 0)",
        "Z.sum() > 0",
        "Z.max() > 0",
        "Z.min() > 0",
        "Z.isSorted()",
        "Z.indexOf(2) < 0",
        "Z.lastIndexOf(2) < 0",
    ] {
        let limits = Limits {
            steps: 2_000_000,
            ..Limits::default()
        };
        let error = error_within(&doubled(23, copy), &limits, "");
        assert!(error == TOO_LARGE || error == TOO_LONG, "{copy}: {error}");
    }
    let text = doubled(23, "Z.map(x, 'abc').join('') != ''");
    assert_eq!(error_of(&text), TOO_LARGE);
}

/// Maps share their values as lists do.
#[test]
fn walks_over_shared_values_are_counted() {
    for then in [
        "'%s'.format([Z]) != ''",
        "[Z].indexOf(Z) == 0",
        "Z == Z",
        "[Z, Z].isSorted()",
        "[Z].max() == Z",
        "[dyn(1), Z].exists(x, x == Z)",
        "{dyn(Z): 1}[dyn(Z)] == 1",
        "[?dyn(Z)].size() == 0",
    ] {
        let mut text = "[dyn({'a': 1})].all(a0, ".to_owned();
        for index in 0..40 {
            let _ = write!(
                text,
                "[dyn({{'a': a{index}, 'b': a{index}}})].all(a{}, ",
                index + 1
            );
        }
        text += &then.replace('Z', "a40");
        text += &")".repeat(41);
        let limits = Limits {
            steps: 200_000,
            ..Limits::default()
        };
        let error = error_within(&text, &limits, "");
        // The message about the optional element quotes the value, cut off.
        let is_bounded =
            error == TOO_LARGE || error == TOO_LONG || then.starts_with("[?") && error.len() < 5000;
        assert!(is_bounded, "{then}: {}", &error[..error.len().min(200)]);
    }
}

#[test]
fn texts_are_counted_before_they_are_built() {
    let long = "ab".repeat(500_000);
    for text in [
        "s.replace('a', s).size() > 0",
        "s.replace('', s).size() > 0",
        "lists.range(1000).map(i, s).join(s).size() > 0",
        "[s].all(a, [a + a].all(b, [b + b].all(c, [c + c].all(d, [d + d].all(e, [e + e].all(f, f + f != ''))))))",
        "lists.range(1000).map(i, s.split('')).size() > 0",
        "lists.range(1000).map(i, s.findAll('')).size() > 0",
        "lists.range(1000).map(i, s.upperAscii()).size() > 0",
        "lists.range(1000).map(i, '%s%s'.format([s, s])).size() > 0",
        "lists.range(1000).map(i, '%X'.format([s])).size() > 0",
        "lists.range(10000000).size() > 0",
    ] {
        let limits = Limits {
            // What costs are for is shown elsewhere.
            cost: u64::MAX,
            ..Limits::default()
        };
        let error = error_within(text, &limits, &long);
        // To find a match may take a look at all that follows.
        let is_search = text.contains("findAll") && error == TOO_LONG;
        assert!(error == TOO_LARGE || is_search, "{text}: {error}");
    }
}

/// Each of these reads a megabyte, and costs next to nothing.
#[test]
fn reading_long_text_is_counted_as_steps() {
    let long = "\u{e9}".repeat(500_000);
    for text in [
        "s.charAt(400000) == ''",
        "s.size() == 0",
        "'a' == s",
        "s != 'a'",
        "'a' < s",
        "'a'.indexOf(s) == 0",
        "'a'.contains(s)",
        "dyn(s).substring(499999) == ''",
    ] {
        let limits = Limits {
            steps: 1_000_000,
            cost: u64::MAX,
            ..Limits::default()
        };
        let text = format!("lists.range(1000).exists(i, ({text}) && i < 0)");
        assert_eq!(error_within(&text, &limits, &long), TOO_LONG, "{text}");
    }
    assert_eq!(
        error_within("s.size() == 500000", &Limits::default(), &long),
        "a value"
    );
}

#[test]
fn evaluations_share_a_budget() {
    let program = Env::kubernetes()
        .compile("lists.range(1000).map(i, i).reverse().size() == 1000")
        .unwrap();
    let alone = program.evaluate_with(&[], &Limits::default());
    assert!(alone.value.is_ok());
    assert!(alone.bytes > 32_000 && alone.steps > 1000, "{alone:?}");

    let both = [
        Budget::new(alone.steps * 3, u64::MAX),
        Budget::new(u64::MAX, alone.bytes * 3),
    ];
    for budget in both {
        let limits = Limits {
            shared: Some(budget.clone()),
            ..Limits::default()
        };
        let good = (0..20)
            .take_while(|_| program.evaluate_with(&[], &limits).value.is_ok())
            .count();
        assert_eq!(good, 3);
        assert!(budget.steps_left() == 0 || budget.bytes_left() == 0);
        // What was used up stays so, also for what needs little.
        let little = Env::kubernetes()
            .compile("1 == 1 || lists.range(1).size() == 1")
            .unwrap();
        let left = budget.steps_left();
        assert_eq!(little.evaluate_with(&[], &limits).value.is_ok(), left > 0);
    }
}

#[test]
fn a_cancelled_evaluation_does_not_begin() {
    let limits = Limits {
        cancel: Some(Arc::new(AtomicBool::new(true))),
        ..Limits::default()
    };
    for text in ["1 + d == 2", "lists.range(1000).sort().distinct().size() > 0"] {
        assert_eq!(error_within(text, &limits, ""), TOO_LONG);
    }
}

#[test]
fn nested_repetitions_have_the_limit_of_re2() {
    let refused = "error parsing regexp: invalid repeat count: `{40}`";
    assert_eq!(outcome("'a'.find('([ab]{1000}){40}') == ''"), refused);
    assert_eq!(
        outcome("[dyn('([ab]{1000}){40}')].exists(p, 'a'.matches(p))"),
        refused
    );
    assert_eq!(outcome("'a'.find('([ab]{20}){40}') == ''"), "a value");
}

#[test]
fn large_patterns_on_long_text_are_counted_as_steps() {
    let limits = Limits {
        cost: u64::MAX,
        steps: 1_000_000,
        ..Limits::default()
    };
    let long = "a".repeat(1_000_000);
    // A megabyte of text and up to four of the pattern: four million steps.
    let large = r"s.matches('^(\\pL{30}x)*$')";
    assert_eq!(error_within(large, &limits, &long), TOO_LONG);
    assert_eq!(error_within("s.matches('^[a-z]+$')", &limits, &long), "a value");
    // Each match may have looked at all the rest.
    let matches = "s.findAll('[^b]*b|a').size() > 0";
    let limits = Limits {
        steps: 100_000,
        ..limits
    };
    assert_eq!(error_within(matches, &limits, &long[..100_000]), TOO_LONG);
}

#[test]
fn compiled_expressions_have_a_budget_together() {
    let env = Env::kubernetes();
    let mut budget = CompileBudget::new(10 << 20);
    let large = r"'a'.matches('\\pL{50}')";
    let first = env.compile_within(large, &mut budget).unwrap();
    assert!(first.memory() > 1 << 20, "{}", first.memory());
    assert_eq!(budget.left(), (10 << 20) - first.memory());
    let mut refused = None;
    for _ in 0..10 {
        refused = refused.or(env.compile_within(large, &mut budget).err());
    }
    let refused = refused.unwrap();
    assert!(refused.is_instantiation());
    assert!(
        refused.to_string().contains("take more than 10240 KiB"),
        "{refused}"
    );
    // Nothing is left, also for small ones, which take no work.
    assert_eq!(budget.left(), 0);
    assert!(env.compile_within("1 == 1", &mut budget).is_err());

    // Nodes count, also those that macros copy.
    let chain = format!("optional.of(1){}", ".optMap(x, x + 1)".repeat(14));
    let mut budget = CompileBudget::new(1 << 20);
    assert!(env.compile_within(&chain, &mut budget).is_err());
    let small = env.compile("1 == 1").unwrap();
    assert!(small.memory() < 4096, "{}", small.memory());
    // One expression by itself is bounded too.
    let many = vec![large; 200].join(" || ");
    assert!(env.compile(&many).is_err());
}

#[test]
fn lists_are_sorted_whatever_is_in_them() {
    for text in [
        "lists.range(500).map(i, i % 3 == 0 ? double('NaN') : double(500 - i)).sort().size() == 500",
        "lists.range(500).map(i, (i * 7919) % 500).sort() == lists.range(500)",
        "lists.range(100).map(i, 99 - i).sortBy(i, i / 10).slice(0, 3) == [9, 8, 7]",
    ] {
        assert_eq!(error_of(text), "a value");
        assert!(
            outcome(&format!("[1].all(x, {text}) ? 1 : [][1]")) == "a value",
            "{text}"
        );
    }
}

/// A chain of deep evaluations would not fit into one large stack.
#[test]
fn deep_evaluations_of_a_host_have_stacks_of_their_own() {
    let mut env = Env::kubernetes();
    env.declare("host", Type::Dyn);
    let deep = env
        .compile(&format!(
            "{}host.field{}",
            "[1].map(x, ".repeat(24),
            ")".repeat(24)
        ))
        .unwrap();
    let threads = Mutex::default();
    let first = Chained {
        deep: &deep,
        threads: &threads,
        further: 3,
    };
    assert!(deep.evaluate(&[Value::Map(Map::host(&first))]).value.is_ok());
    let mut threads = threads.into_inner().unwrap();
    threads.push(std::thread::current().id());
    let distinct: HashSet<_> = threads.iter().collect();
    assert_eq!((threads.len(), distinct.len()), (5, 5));
}

/// A host whose field is a deep evaluation that reads the field of the next one.
struct Chained<'a> {
    deep: &'a Program,
    /// Where each field was read.
    threads: &'a Mutex<Vec<ThreadId>>,
    further: usize,
}

impl HostObject for Chained<'_> {
    fn field(&self, _: &str) -> Option<Result<Value<'_>, EvalError>> {
        self.threads.lock().unwrap().push(std::thread::current().id());
        if let Some(further) = self.further.checked_sub(1) {
            let next = Chained { further, ..*self };
            let evaluated = self.deep.evaluate(&[Value::Map(Map::host(&next))]);
            assert!(evaluated.value.is_ok());
        }
        Some(Ok(Value::Int(1)))
    }

    fn names(&self) -> Vec<&str> {
        vec!["field"]
    }
}

/// A rule of items that needs a large stack does not start a thread for each of them.
#[test]
fn rules_enter_a_large_stack_once() {
    let rule = format!(
        "{}true{}",
        "[1].all(x, self == self && ".repeat(20),
        ")".repeat(20)
    );
    let schema = json!({"type": "array", "maxItems": 3000, "items": {
        "type": "integer", "x-kubernetes-validations": [{"rule": rule}],
    }});
    let rules = Rules::compile_part(&schema).unwrap();
    let object = Json::from((0..2000).collect::<Vec<i32>>());
    let started = std::time::Instant::now();
    let outcome = rules.root().validate(&Validation::create(&object));
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
