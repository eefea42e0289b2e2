//! Query parameters of lists and watches: selectors, pages, resource versions.

use std::collections::BTreeSet;

use fastrand::Rng;
use serde_json::Value;

use super::{
    request::Draft,
    test_server::{Response, TestServer},
};
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{bytes, dictionary},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// No list here has more pages: there are only a few objects, and each page has at least one.
const MAX_PAGES: usize = 100;

pub(super) const SELECTORS: &[(&str, &[&str])] = &[
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

pub(super) const LISTS: &[(&str, &[&str])] = &[
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
    server: TestServer,
    parameters: &'static [(&'static str, &'static [&'static str])],
}

impl Parameters {
    pub(super) fn selectors() -> Self {
        Self {
            server: TestServer::new(),
            parameters: SELECTORS,
        }
    }

    pub(super) fn lists() -> Self {
        Self {
            server: TestServer::new(),
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
        // A valid continue token, for mutations to damage.
        let page = self
            .server
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
            0 => dictionary::text(rng),
            1 => format!("{known},{}", dictionary::text(rng)),
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
        self.server.next_input();
        let draft = Draft::parse(input);
        let Some(request) = draft.build().filter(|_| draft.method == "GET") else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let response = self.server.call(request);
        let allocated = meter.check(input.len())?;
        response.check()?;
        let list = response.json();
        let is_list = response.code == 200 && list["items"].is_array() && draft.path() == CONFIG_MAPS;
        if is_list {
            self.check_pages(&draft, &list)?;
            self.check_watch(&draft, &response)?;
        }
        Ok(Outcome {
            accepted: is_list,
            fingerprint: response.digest(),
            allocated,
        })
    }
}

impl Parameters {
    /// Checks that the pages can be followed to the end, and that no object is on two of them.
    fn check_pages(&self, draft: &Draft, first: &Value) -> Result<(), Violation> {
        let mut page = first.clone();
        let mut seen = BTreeSet::new();
        let mut draft = draft.clone();
        for _ in 0..MAX_PAGES {
            for name in names(&page) {
                if !seen.insert(name.clone()) {
                    return Err(Invariant::ReadableAgain
                        .violated(format!("`{name}` is on two pages of {}", draft.target)));
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
            let response = self.server.call(request);
            response.check()?;
            if response.code != 200 {
                return Err(Invariant::ReadableAgain.violated(format!(
                    "the next page, {}: {}",
                    draft.target,
                    response.text()
                )));
            }
            page = response.json();
        }
        Err(Invariant::ReadableAgain.violated(format!("more than {MAX_PAGES} pages: {}", draft.target)))
    }

    /// Checks that a watch with the same selectors starts with the objects of the list.
    fn check_watch(&self, draft: &Draft, list: &Response) -> Result<(), Violation> {
        let selectors: Vec<&str> = draft
            .query()
            .split('&')
            .filter(|pair| pair.starts_with("labelSelector=") || pair.starts_with("fieldSelector="))
            .collect();
        // The server may choose either of two selectors; it is not tested that list and watch choose the same.
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
        let response = self.server.get(&target, "application/json");
        response.check()?;
        let events = serde_json::Deserializer::from_slice(&response.body)
            .into_iter::<Value>()
            .flatten();
        let watched: BTreeSet<String> = events
            .filter(|event| event["type"] == "ADDED")
            .filter_map(|event| event["object"]["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        let listed: BTreeSet<String> = names(&list.json()).into_iter().collect();
        if response.code != 200 || watched != listed {
            return Err(Invariant::ReadableAgain.violated(format!(
                "{} lists {listed:?}, but a watch starts with {watched:?}: {}",
                draft.target,
                response.text()
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
