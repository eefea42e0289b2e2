//! What is on the screen, cell by cell.

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

use super::*;
use crate::demo::{
    claims::Ledger,
    model::{Happening, LastRow},
};

const FULL: Look = Look {
    colour: true,
    unicode: true,
};

fn drawn(model: &Model, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    let frame = terminal.draw(|frame| draw(frame, model, look)).expect("memory");
    frame.buffer.clone()
}

fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content.chunks(buffer.area.width.into()) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// In the middle of a story: work is queued, one controller fails, a node is away and one is full.
fn busy() -> Model {
    let claims = ["ten nodes are ready", "the drift was repaired", "nothing is left"];
    let mut model = Model::new(
        "Kubernetes v1.36.4 in this process, 10 nodes".to_owned(),
        Ledger::promise(claims),
    );
    let row = |name: &str, outcome: &str, well: bool| ControllerRow {
        name: name.to_owned(),
        state: "running",
        queued: 12,
        running: 1,
        rate: 61.7,
        total: 1234,
        failing: usize::from(!well),
        last: Some(LastRow {
            outcome: outcome.to_owned(),
            well,
            key: "demo/crowd-17".to_owned(),
            took: millis(3),
        }),
    };
    model.controllers = vec![
        row("foo", "done", true),
        row("icecream", "failed", false),
        ControllerRow {
            name: "podwatch".to_owned(),
            state: "syncing",
            ..ControllerRow::default()
        },
    ];
    model.nodes = (1..=10)
        .map(|number| NodeRow {
            name: format!("node-{number}"),
            state: match number {
                3 => NodeState::NotReady,
                7 => NodeState::Tainted,
                8 => NodeState::Cordoned,
                _ => NodeState::Ready,
            },
            pods_ready: if number == 2 { 110 } else { number },
            pods_waiting: if number == 3 { 2 } else { 0 },
        })
        .collect();
    let said = || Happening::Said {
        who: "deployment-controller".to_owned(),
        topic: "ScalingReplicaSet".to_owned(),
        text: "ScalingReplicaSet Deployment demo/web: Scaled up replica set web-8649dd8d74 from 0 to 2"
            .to_owned(),
    };
    for (at, happening) in [
        (300, Happening::Chapter("A cluster in this process")),
        (
            310,
            Happening::Settled {
                claim: claims[0],
                verdict: Verdict::Held { after: millis(2) },
            },
        ),
        (500, Happening::Chapter("foo: a Foo gets its Deployment")),
        (
            501,
            Happening::Act("change the Deployment by hand: 7 replicas of httpd".to_owned()),
        ),
        (620, said()),
        (630, said()),
        (
            10_900,
            Happening::Settled {
                claim: claims[1],
                verdict: Verdict::Failed {
                    found: "Deployment demo/web has 7 replicas".to_owned(),
                },
            },
        ),
    ] {
        model.elapsed = millis(at);
        model.apply(happening);
    }
    model
}

#[test]
fn a_small_terminal_shows_all_of_it() {
    let shown = text(&drawn(&busy(), FULL, 80, 24));
    let wanted = include_str!("80x24.txt");
    assert_eq!(shown, wanted, "if it is better, put it into 80x24.txt:\n{shown}");
}

#[test]
fn a_large_terminal_has_the_log_beside_and_every_claim() {
    let shown = text(&drawn(&busy(), FULL, 160, 50));
    let wanted = include_str!("160x50.txt");
    assert_eq!(shown, wanted, "if it is better, put it into 160x50.txt:\n{shown}");
}

#[test]
fn without_unicode_there_is_none() {
    let poor = Look {
        unicode: false,
        ..FULL
    };
    for (width, height) in [(80, 24), (160, 50)] {
        let mut model = busy();
        model.chapter = "";
        let shown = text(&drawn(&model, poor, width, height));
        assert!(shown.is_ascii(), "{shown}");
        assert!(
            shown.contains("NO  the drift was repaired") || shown.contains("NO the drift was repaired"),
            "{shown}"
        );
    }
}

#[test]
fn colours_are_there_unless_nobody_wants_them() {
    let colours = |colour| {
        let buffer = drawn(&busy(), Look { colour, ..FULL }, 80, 24);
        let mut colours: Vec<_> = buffer
            .content
            .iter()
            .flat_map(|cell| [cell.fg, cell.bg])
            .filter(|colour| *colour != Color::Reset)
            .map(|colour| colour.to_string())
            .collect();
        colours.sort();
        colours.dedup();
        colours
    };
    assert_eq!(colours(true), ["Cyan", "Green", "Magenta", "Red", "Yellow"]);
    assert!(colours(false).is_empty());
}

#[test]
fn no_size_is_too_strange() {
    for width in [1, 2, 10, 40, 79, 119, 120, 300] {
        for height in [1, 2, 5, 12, 23, 29, 30, 100] {
            drawn(&busy(), FULL, width, height);
            drawn(&Model::default(), FULL, width, height);
        }
    }
}

#[test]
fn the_foot_says_how_it_stands_and_how_it_ended() {
    let foot = |model: &Model| {
        let shown = text(&drawn(model, FULL, 80, 24));
        shown.lines().last().expect("a line").to_owned()
    };
    let settled = |verdict: Verdict| {
        let mut model = Model::new(String::new(), Ledger::promise(["a", "b"]));
        model.apply(Happening::Settled { claim: "a", verdict });
        model
    };
    let held = || Verdict::Held { after: millis(1) };
    let mut model = settled(held());
    assert!(
        foot(&model).contains("1 of 2 claims checked, all held"),
        "{}",
        foot(&model)
    );
    model.over = true;
    assert!(
        foot(&model).contains("1 of 2 claims were not checked"),
        "{}",
        foot(&model)
    );
    model.apply(Happening::Settled {
        claim: "b",
        verdict: held(),
    });
    assert!(foot(&model).contains("all 2 claims held"), "{}", foot(&model));
    let model = settled(Verdict::Failed { found: String::new() });
    assert!(
        foot(&model).contains("1 of 2 claims did not hold"),
        "{}",
        foot(&model)
    );
}

/// What the rows of controllers with long names begin with.
fn names_at(width: u16, height: u16) -> Vec<String> {
    let mut model = busy();
    let template = model.controllers[0].clone();
    model.controllers = ["reboot-nodes", "reboot-policies", "simulated-agents"]
        .map(|name| ControllerRow {
            name: name.to_owned(),
            ..template.clone()
        })
        .to_vec();
    let shown = text(&drawn(&model, FULL, width, height));
    let rows = shown.lines().skip(3).take(3);
    let words = rows.map(|row| row.split_whitespace().next().unwrap_or_default().to_owned());
    words.collect()
}

#[test]
fn controllers_names_are_whole_where_there_is_room() {
    for size in [(80, 24), (100, 30), (119, 40), (120, 32), (160, 50), (250, 70)] {
        let names = names_at(size.0, size.1);
        assert_eq!(
            names,
            ["reboot-nodes", "reboot-policies", "simulated-agents"],
            "{size:?}"
        );
    }
}

#[test]
fn shortened_names_keep_their_ends_and_stay_apart() {
    assert_eq!(names_at(43, 24), ["rebo…odes", "rebo…cies", "simu…ents"]);
}

/// How long it took stands there whole, and the claim has a sign that there is more of it.
#[test]
fn a_long_claim_is_cut_with_a_sign() {
    let claim =
        "a claim of which there is so much to say that no column of any screen would be wide enough for it";
    let mut model = Model::new(String::new(), Ledger::promise([claim]));
    let verdict = Verdict::Held { after: millis(12) };
    model.apply(Happening::Settled { claim, verdict });
    let shown = text(&drawn(&model, FULL, 160, 50));
    assert!(shown.lines().any(|line| line.ends_with("…  12 ms")), "{shown}");
}

/// Only the newest lines fit, and those are shown.
#[test]
fn the_log_ends_with_what_happened_last() {
    let mut model = busy();
    for number in 0..100 {
        model.apply(Happening::Act(format!("step {number}")));
    }
    let shown = text(&drawn(&model, FULL, 80, 24));
    assert!(shown.contains("step 99") && !shown.contains("step 80"), "{shown}");
}
