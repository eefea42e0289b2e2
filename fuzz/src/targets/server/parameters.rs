//! Parameters of lists and watches: selectors, pages, versions.

use std::collections::BTreeSet;

use fastrand::Rng;
use serde_json::Value;

use super::{
    ask::{Answer, Subject},
    request::Draft,
};
use crate::{
    engine::{Outcome, Target},
    laws::{Law, Meter, Violation},
    mutate::{bytes, words},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// No list here has more pages: there are a few objects, and at least one is on each.
const MAX_PAGES: usize = 100;

const SELECTORS: &[(&str, &[&str])] = &[
    (
        "labelSelector",
        &[
            "a=b",
            "a==b,n!=3",
            "n in (1,2,3)",
            "n notin (1,2)",
            "!missing",
            "a,even",
            "n>2,n<5",
            "even=true,n in (0,2,4)",
            "a in ()",
            "a in (",
            "a=b=c",
            "é=b",
            "x/y=z",
            "x/y/z",
            "a = b , n",
            "-a=b",
            "a=-b",
            "in in (in)",
            "notin",
        ],
    ),
    (
        "fieldSelector",
        &[
            "metadata.name=c1",
            "metadata.name!=c1",
            "metadata.namespace=default",
            "metadata.name=c1,metadata.namespace=default",
            "metadata.name==c2",
            "metadata.name=a\\,b",
            "metadata.name=\\",
            "spec.x=1",
            "metadata.name in (a)",
            "=",
            ",",
        ],
    ),
];

const LISTS: &[(&str, &[&str])] = &[
    (
        "limit",
        &["1", "2", "3", "0", "-1", "500", "9223372036854775807", "x", "1e3"],
    ),
    (
        "continue",
        &[
            "",
            "x",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
            "bm9wZQ",
        ],
    ),
    (
        "resourceVersion",
        &[
            "",
            "0",
            "1",
            "5",
            "-1",
            "9223372036854775807",
            "18446744073709551616",
            "x",
        ],
    ),
    ("resourceVersionMatch", &["Exact", "NotOlderThan", "", "x"]),
    ("watch", &["true", "1", "false", "FALSE", "T", "x", ""]),
    (
        "timeoutSeconds",
        &["1", "0", "-1", "5", "9223372036854775807", "x"],
    ),
    ("allowWatchBookmarks", &["true", "false", "x"]),
    ("sendInitialEvents", &["true", "false", "x"]),
    ("labelSelector", &["a=b", "even=true"]),
    ("pretty", &["true"]),
];

pub(super) struct Parameters {
    subject: Subject,
    parameters: &'static [(&'static str, &'static [&'static str])],
}

impl Parameters {
    pub(super) fn selectors() -> Self {
        Self {
            subject: Subject::new(),
            parameters: SELECTORS,
        }
    }

    pub(super) fn lists() -> Self {
        Self {
            subject: Subject::new(),
            parameters: LISTS,
        }
    }
}

impl Target for Parameters {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for (name, values) in self.parameters {
            for value in *values {
                let mut draft = Draft::new("GET", CONFIG_MAPS, "", "");
                draft.set_parameter(name, value);
                seeds.push(draft.to_bytes());
            }
        }
        // A real token, for a mutation to damage.
        let page = self
            .subject
            .get(&format!("{CONFIG_MAPS}?limit=2"), "application/json")
            .json();
        let mut draft = Draft::new("GET", CONFIG_MAPS, "", "");
        draft.set_parameter("limit", "2");
        draft.set_parameter(
            "continue",
            page["metadata"]["continue"].as_str().unwrap_or_default(),
        );
        seeds.push(draft.to_bytes());
        seeds
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut draft = Draft::parse(input);
        let Some((name, values)) = rng.choice(self.parameters) else {
            return input.to_vec();
        };
        let known = rng.choice(*values).copied().unwrap_or_default();
        let value = match rng.u8(..6) {
            0 => words::text(rng),
            1 => format!("{known},{}", words::text(rng)),
            2 => known.repeat(1 + rng.usize(..50)),
            3 => String::from_utf8_lossy(&bytes::mutate(known.as_bytes(), donor, rng)).into_owned(),
            _ => known.to_owned(),
        };
        match rng.u8(..8) {
            0 => {
                draft.target =
                    String::from_utf8_lossy(&bytes::mutate(draft.target.as_bytes(), donor, rng)).into_owned();
            }
            1 => {
                let more = format!("{}&{}", draft.target, Draft::parse(donor).query());
                draft.target = more;
            }
            _ => draft.set_parameter(name, &value),
        }
        draft.to_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.subject.next_input();
        let draft = Draft::parse(input);
        let Some(request) = draft.build().filter(|_| draft.method == "GET") else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let answer = self.subject.ask(request);
        let allocated = meter.check(input.len())?;
        answer.check()?;
        let list = answer.json();
        let is_list = answer.code == 200 && list["items"].is_array() && draft.path() == CONFIG_MAPS;
        if is_list {
            self.check_pages(&draft, &list)?;
            self.check_watch(&draft, &answer)?;
        }
        Ok(Outcome {
            accepted: is_list,
            answer: answer.digest(),
            allocated,
        })
    }
}

impl Parameters {
    /// Every page can be followed to the end, and no object is on two of them.
    fn check_pages(&self, draft: &Draft, first: &Value) -> Result<(), Violation> {
        let mut page = first.clone();
        let mut seen = BTreeSet::new();
        let mut draft = draft.clone();
        for _ in 0..MAX_PAGES {
            for name in names(&page) {
                if !seen.insert(name.clone()) {
                    return Err(
                        Law::ReadableAgain.broken(format!("`{name}` is on two pages of {}", draft.target))
                    );
                }
            }
            let Some(token) = page["metadata"]["continue"]
                .as_str()
                .filter(|token| !token.is_empty())
            else {
                return Ok(());
            };
            let token = token.to_owned();
            draft.set_parameter("continue", &token);
            for name in ["resourceVersion", "resourceVersionMatch"] {
                draft.set_parameter(name, "");
            }
            let Some(request) = draft.build() else {
                return Ok(());
            };
            let answer = self.subject.ask(request);
            answer.check()?;
            if answer.code != 200 {
                return Err(Law::ReadableAgain.broken(format!(
                    "the next page, {}: {}",
                    draft.target,
                    answer.text()
                )));
            }
            page = answer.json();
        }
        Err(Law::ReadableAgain.broken(format!("more than {MAX_PAGES} pages: {}", draft.target)))
    }

    /// A watch with the same selectors begins with the objects of the list.
    fn check_watch(&self, draft: &Draft, list: &Answer) -> Result<(), Violation> {
        let selectors: Vec<&str> = draft
            .query()
            .split('&')
            .filter(|pair| pair.starts_with("labelSelector=") || pair.starts_with("fieldSelector="))
            .collect();
        // Which of two selectors counts is the server's business; that both requests agree on it is not tested.
        let names_of = |pairs: &[&str]| {
            pairs
                .iter()
                .filter_map(|pair| pair.split('=').next().map(str::to_owned))
                .collect::<BTreeSet<_>>()
        };
        if names_of(&selectors).len() != selectors.len()
            || selectors.len() != draft.query().split('&').count()
        {
            return Ok(());
        }
        let target = format!(
            "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1&{}",
            selectors.join("&")
        );
        let answer = self.subject.get(&target, "application/json");
        answer.check()?;
        let events = serde_json::Deserializer::from_slice(&answer.body)
            .into_iter::<Value>()
            .flatten();
        let watched: BTreeSet<String> = events
            .filter(|event| event["type"] == "ADDED")
            .filter_map(|event| event["object"]["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        let listed: BTreeSet<String> = names(&list.json()).into_iter().collect();
        if answer.code != 200 || watched != listed {
            return Err(Law::ReadableAgain.broken(format!(
                "{} lists {listed:?}, and a watch begins with {watched:?}: {}",
                draft.target,
                answer.text()
            )));
        }
        Ok(())
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned))
        .collect()
}
