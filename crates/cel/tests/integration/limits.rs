//! Hostile expressions end with an error, on an ordinary stack and in bounded time.

use windlass_cel::{Env, Type, Value};

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
