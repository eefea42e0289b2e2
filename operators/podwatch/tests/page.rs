//! docs/podwatch.md is complete, and the chat notices of docs/reboot.md work.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::{process::Command, time::timeout};
use windlass::{
    cache::ObjectKey,
    k8s_openapi::api::core::v1::Event,
    kube::{
        Api,
        api::PostParams,
        core::{ApiResource, GroupVersionKind},
    },
    prelude::*,
};
use windlass_podwatch::{
    EventType, Notice,
    sinks::{SINK_HELP, Template},
};

use crate::sinks::{DEADLINE, Fixture};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(name: &str) -> String {
    read(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs")
            .join(name),
    )
}

/// All source files of the crate, without its tests.
fn sources() -> Vec<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.iter().map(|file| read(file)).collect()
}

#[test]
fn page_names_every_sink_option_placeholder_event_and_metric() {
    let page = page("podwatch.md");
    let (kinds, options) = SINK_HELP.split_once("Options,").expect("both parts");
    // The first word of a line that begins a kind or an option.
    let words = |text: &str, indent: usize| -> Vec<String> {
        let begins = |line: &&str| line.len() - line.trim_start().len() == indent;
        let lines = text.lines().filter(begins);
        lines
            .filter_map(|line| line.split_whitespace().next())
            .map(ToOwned::to_owned)
            .collect()
    };
    let kinds = words(kinds, 0);
    assert!(kinds.len() >= 7, "{kinds:?}");
    let mut options = words(options, 2);
    // `rotate=SIZE, keep=N` is one line.
    options.push("keep=N".to_owned());
    let options = options.iter().filter_map(|option| option.split('=').next());
    let options: Vec<_> = options.map(ToOwned::to_owned).collect();
    assert!(options.len() >= 12, "{options:?}");
    let unknown = "[\"{{?}}\"]"
        .parse::<Template>()
        .expect_err("unknown")
        .to_string();
    let placeholders = unknown.split_once("use ").expect("a list").1;
    let placeholders = placeholders.split_once(", or a field").expect("a list").0;
    let placeholders: Vec<_> = placeholders
        .split(", ")
        .map(|one| one.trim_matches('`').to_owned())
        .collect();
    assert!(placeholders.len() >= 13, "{placeholders:?}");
    let events = EventType::ALL.map(|event| event.name().to_owned());
    let mut missing = Vec::new();
    for kind in kinds {
        if !page.contains(&format!("`{kind}")) {
            missing.push(kind);
        }
    }
    for name in options.into_iter().chain(placeholders).chain(events) {
        let ends = ['`', '='];
        if !ends.iter().any(|end| page.contains(&format!("`{name}{end}")))
            && !page.contains(&format!("{name}="))
        {
            missing.push(name);
        }
    }
    let mut metrics = 0;
    for source in sources() {
        for name in source
            .split('"')
            .filter(|word| word.starts_with("windlass_podwatch_"))
        {
            metrics += 1;
            // The page writes the common beginning of a row of metrics once.
            let short = name.trim_start_matches("windlass_podwatch_sink");
            if !page.contains(name) && !page.contains(&format!("…{short}")) {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(metrics >= 12, "{metrics} metrics");
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn page_links_resolve() {
    let page = page("podwatch.md");
    let titles: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")))
        .map(|title| {
            title
                .to_lowercase()
                .replace(' ', "-")
                .replace([',', ':', '`'], "")
        })
        .collect();
    for link in page
        .split("](#")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
    {
        assert!(
            titles.iter().any(|title| title == link),
            "#{link} is not in {titles:?}"
        );
    }
}

/// The section of docs/reboot.md about chats.
fn chat_section() -> String {
    let page = page("reboot.md");
    let section = page.split("**Chat notices**").nth(1).expect("the section");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The code blocks of this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    text.split(&begin)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()))
        .collect()
}

/// Splits a command into words, as a shell does with double quotes.
fn shell_words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in command.replace("\\\n", " ").split('"').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(ToOwned::to_owned));
        }
    }
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_notice_of_a_failed_reboot_says_what_happened() {
    let fixture = Fixture::new().await;
    let mut bodies = fixture.listen().await;
    let command = blocks(&chat_section(), "sh").remove(0);
    let command = command.split("\nwindlass ").next().expect("the first").to_owned();
    let words = shell_words(&command);
    assert_eq!(words[..3], ["windlass", "run", "podwatch"]);
    let local = format!("webhook:http://127.0.0.1:{}/", fixture.port);
    let words = words[3..].iter().map(|word| match word.as_str() {
        "podwatch.state" => fixture.path("state"),
        word if word.starts_with("webhook:https://") => {
            let options = word
                .split_once(',')
                .map_or(String::new(), |(_, options)| format!(",{options}"));
            format!("{local}{options}")
        }
        word => word.to_owned(),
    });
    let _child = Command::new(env!("CARGO_BIN_EXE_podwatch"))
        .arg("--kubeconfig")
        .arg(fixture.cluster.kubeconfig().expect("a file"))
        .arg("--no-listen")
        .args(words)
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let events = Api::<Event>::default_namespaced(fixture.cluster.client());
    let create = async |name: &str, component: &str| {
        let event = json!({
            "metadata": { "name": name }, "type": "Warning", "reason": "RebootFailed",
            "involvedObject": { "kind": "Node", "name": "n1" }, "source": { "component": component },
            "message": "node n1: no new boot ID <!channel>",
        });
        let event = from_value(event).expect("an Event");
        events
            .create(&PostParams::default(), &event)
            .await
            .expect("created");
    };
    // An Event from before the start is not a new one: it is repeated until podwatch watches.
    let reported = async {
        for number in 0.. {
            create(&format!("n1.other{number}"), "kubelet").await;
            create(&format!("n1.ours{number}"), "windlass-reboot").await;
            if let Ok(message) = timeout(Duration::from_millis(200), bodies.recv()).await {
                return message;
            }
        }
        None
    };
    let message = timeout(DEADLINE, reported).await.expect("a message");
    assert_eq!(
        message.expect("the receiver runs"),
        json!({ "text": "*Warning: RebootFailed* `Node n1`\nnode n1: no new boot ID &lt;!channel&gt;" })
    );
}

#[test]
fn chat_notice_of_a_policy_says_what_it_waits_for() {
    let section = chat_section();
    assert!(blocks(&section, "sh")[0].contains("template=policy.json"));
    let template: Template = blocks(&section, "json").remove(0).parse().expect("a template");
    let kind = GroupVersionKind::gvk("reboot.windlass.dev", "v1alpha1", "RebootPolicy");
    let notice = Notice {
        event: EventType::Updated,
        inferred: false,
        kind: Arc::new(ApiResource::from_gvk(&kind)),
        key: ObjectKey::cluster_scoped("default"),
        uid: None,
        resource_version: None,
        time: "2026-01-02T03:04:05Z".parse().expect("a time"),
        object: Some(Arc::new(json!({ "status": { "message": "n1: Draining" } }))),
        changes: Vec::new(),
        coalesced: 0,
    };
    let message: Value = serde_json::from_slice(&template.render(&notice)).expect("JSON");
    assert_eq!(message, json!({ "text": "RebootPolicy `default`: n1: Draining" }));
}
