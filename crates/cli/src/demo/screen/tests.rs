//! Snapshots and layout of the screen.

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

use super::*;
use crate::demo::{
    claims::Ledger,
    model::{DemoEvent, LastRow},
};

const FULL: Capabilities = Capabilities {
    colour: true,
    unicode: true,
};

fn draw_to_buffer(model: &Model, capabilities: Capabilities, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    let frame = terminal
        .draw(|frame| draw(frame, model, capabilities))
        .expect("memory");
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

/// A demo in progress: work is queued, one controller fails, one node is not ready and one is full.
fn model_in_progress() -> Model {
    let claims = ["ten nodes are ready", "the drift was repaired", "nothing is left"];
    let mut model = Model::new(
        "Kubernetes v1.36.4 in this process, 10 nodes".to_owned(),
        Ledger::new(claims),
    );
    let row = |name: &str, outcome: &str, succeeded: bool| ControllerRow {
        name: name.to_owned(),
        state: "running",
        queued: 12,
        running: 1,
        rate: 61.7,
        total: 1234,
        failing: usize::from(!succeeded),
        last: Some(LastRow {
            outcome: outcome.to_owned(),
            succeeded,
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
    let message = || DemoEvent::Message {
        component: "deployment-controller".to_owned(),
        topic: "ScalingReplicaSet".to_owned(),
        text: "ScalingReplicaSet Deployment demo/web: Scaled up replica set web-8649dd8d74 from 0 to 2"
            .to_owned(),
    };
    for (at, event) in [
        (300, DemoEvent::Chapter("A cluster in this process")),
        (
            310,
            DemoEvent::ClaimChecked {
                claim: claims[0],
                verdict: Verdict::Held { after: millis(2) },
            },
        ),
        (500, DemoEvent::Chapter("foo: a Foo gets its Deployment")),
        (
            501,
            DemoEvent::Action("change the Deployment by hand: 7 replicas of httpd".to_owned()),
        ),
        (620, message()),
        (630, message()),
        (
            10_900,
            DemoEvent::ClaimChecked {
                claim: claims[1],
                verdict: Verdict::Failed {
                    found: "Deployment demo/web has 7 replicas".to_owned(),
                },
            },
        ),
    ] {
        model.elapsed = millis(at);
        model.apply(event);
    }
    model
}

#[test]
fn small_terminal_matches_snapshot() {
    let shown = text(&draw_to_buffer(&model_in_progress(), FULL, 80, 24));
    let wanted = include_str!("80x24.txt");
    assert_eq!(
        shown, wanted,
        "if the change is intended, update 80x24.txt:\n{shown}"
    );
}

#[test]
fn large_terminal_matches_snapshot() {
    let shown = text(&draw_to_buffer(&model_in_progress(), FULL, 160, 50));
    let wanted = include_str!("160x50.txt");
    assert_eq!(
        shown, wanted,
        "if the change is intended, update 160x50.txt:\n{shown}"
    );
}

#[test]
fn screen_without_unicode_is_ascii() {
    let poor = Capabilities {
        unicode: false,
        ..FULL
    };
    for (width, height) in [(80, 24), (160, 50)] {
        let mut model = model_in_progress();
        model.chapter = "";
        let shown = text(&draw_to_buffer(&model, poor, width, height));
        assert!(shown.is_ascii(), "{shown}");
        assert!(
            shown.contains("NO  the drift was repaired") || shown.contains("NO the drift was repaired"),
            "{shown}"
        );
    }
}

#[test]
fn colors_are_used_only_if_enabled() {
    let colours = |colour| {
        let buffer = draw_to_buffer(&model_in_progress(), Capabilities { colour, ..FULL }, 80, 24);
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
fn any_size_draws_without_panic() {
    for width in [1, 2, 10, 40, 79, 119, 120, 300] {
        for height in [1, 2, 5, 12, 23, 29, 30, 100] {
            draw_to_buffer(&model_in_progress(), FULL, width, height);
            draw_to_buffer(&Model::default(), FULL, width, height);
        }
    }
}

#[test]
fn footer_shows_progress_and_result() {
    let foot = |model: &Model| {
        let shown = text(&draw_to_buffer(model, FULL, 80, 24));
        shown.lines().last().expect("a line").to_owned()
    };
    let settled = |verdict: Verdict| {
        let mut model = Model::new(String::new(), Ledger::new(["a", "b"]));
        model.apply(DemoEvent::ClaimChecked { claim: "a", verdict });
        model
    };
    let held = || Verdict::Held { after: millis(1) };
    let mut model = settled(held());
    assert!(
        foot(&model).contains("1 of 2 claims checked, all held"),
        "{}",
        foot(&model)
    );
    model.is_complete = true;
    assert!(
        foot(&model).contains("1 of 2 claims were not checked"),
        "{}",
        foot(&model)
    );
    model.apply(DemoEvent::ClaimChecked {
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

/// The first column of rows with long controller names.
fn names_at(width: u16, height: u16) -> Vec<String> {
    let mut model = model_in_progress();
    let template = model.controllers[0].clone();
    model.controllers = ["reboot-nodes", "reboot-policies", "simulated-agents"]
        .map(|name| ControllerRow {
            name: name.to_owned(),
            ..template.clone()
        })
        .to_vec();
    let shown = text(&draw_to_buffer(&model, FULL, width, height));
    let rows = shown.lines().skip(3).take(3);
    let words = rows.map(|row| row.split_whitespace().next().unwrap_or_default().to_owned());
    words.collect()
}

#[test]
fn controller_names_are_not_shortened_if_they_fit() {
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
fn shortened_names_stay_distinct() {
    assert_eq!(names_at(43, 24), ["rebo…odes", "rebo…cies", "simu…ents"]);
}

/// The duration is shown in full.
#[test]
fn long_claim_is_truncated_with_ellipsis() {
    let claim =
        "a claim that is so long that it does not fit into the column for claims, however wide the screen is";
    let mut model = Model::new(String::new(), Ledger::new([claim]));
    let verdict = Verdict::Held { after: millis(12) };
    model.apply(DemoEvent::ClaimChecked { claim, verdict });
    let shown = text(&draw_to_buffer(&model, FULL, 160, 50));
    assert!(shown.lines().any(|line| line.ends_with("…  12 ms")), "{shown}");
}

#[test]
fn log_shows_the_newest_lines() {
    let mut model = model_in_progress();
    for number in 0..100 {
        model.apply(DemoEvent::Action(format!("step {number}")));
    }
    let shown = text(&draw_to_buffer(&model, FULL, 80, 24));
    assert!(shown.contains("step 99") && !shown.contains("step 80"), "{shown}");
}
