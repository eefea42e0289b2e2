//! Writes of objects, in any encoding and by any patch.

use fastrand::Rng;

use super::{
    ask::Subject,
    readable::Stored,
    request::Draft,
    seeds::{self, Bases},
};
use crate::{
    engine::{Outcome, Target},
    laws::{COPIED_BYTES, MAX_DEPTH, Meter, Violation},
    mutate,
};

/// Objects of these are answered and not stored.
const NOT_STORED: [&str; 6] = [
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "selfsubjectreviews",
    "localsubjectaccessreviews",
];

/// Parts of an object that are not the object.
const PARTS_WITHOUT_OBJECT: [&str; 5] = ["eviction", "binding", "token", "scale", "log"];

/// Requests with a body, from seeds of one sort.
pub(super) struct Writes {
    subject: Subject,
    bases: Bases,
    make_seeds: fn(&Subject, &Bases) -> Vec<Draft>,
}

impl Writes {
    pub(super) fn new(make_seeds: fn(&Subject, &Bases) -> Vec<Draft>) -> Self {
        Self {
            subject: Subject::new(),
            bases: seeds::bases(),
            make_seeds,
        }
    }
}

/// What a path is about: the collection, the object's name and its part.
pub(super) struct Place<'a> {
    pub(super) collection: &'a str,
    pub(super) name: &'a str,
    pub(super) part: &'a str,
}

impl<'a> Place<'a> {
    pub(super) fn of(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        // An empty part, the root and its version or group and version; then perhaps a namespace.
        let root = match *parts.get(1)? {
            "api" => 3,
            "apis" => 4,
            _ => return None,
        };
        let plural = if parts.get(root) == Some(&"namespaces") && parts.len() > root + 2 {
            root + 2
        } else {
            root
        };
        let end: usize = parts[..=plural.min(parts.len() - 1)]
            .iter()
            .map(|part| part.len() + 1)
            .sum();
        Some(Self {
            collection: path.get(..end.checked_sub(1)?)?,
            name: parts.get(plural + 1).copied().unwrap_or_default(),
            part: parts.get(plural + 2).copied().unwrap_or_default(),
        })
    }
}

impl Target for Writes {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let seeds = (self.make_seeds)(&self.subject, &self.bases);
        seeds.iter().map(Draft::to_bytes).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut draft = Draft::parse(input);
        draft.mutate(&Draft::parse(donor), rng);
        draft.to_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.subject.next_input();
        let draft = Draft::parse(input);
        let result = one(&self.subject, &self.bases, &draft, input.len());
        if result.is_err() {
            // Whatever is wrong must not be in the way of the next input.
            self.subject.reset();
        }
        result
    }
}

fn one(subject: &Subject, bases: &Bases, draft: &Draft, length: usize) -> Result<Outcome, Violation> {
    let (Some(request), Some(place)) = (draft.build(), Place::of(draft.path())) else {
        return Ok(Outcome::default());
    };
    if place.name == seeds::NAME
        && let Some(base) = bases.get(place.collection)
    {
        let created = subject.send("POST", place.collection, &[], base.to_string().into());
        created.check()?;
    }
    let meter = Meter::start();
    let answer = subject.ask(request);
    let allocated = if draft.is_json_patch() && meter.allocated() < COPIED_BYTES {
        meter.allocated()
    } else {
        meter.check(length)?
    };
    answer.check()?;
    let answered = answer.json();
    let name = match place.name {
        "" => answered["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    };
    let plural = place.collection.rsplit('/').next().unwrap_or_default();
    let stored = answer.is_success()
        && !name.is_empty()
        && !name.contains('/')
        && matches!(draft.method.as_str(), "POST" | "PUT" | "PATCH")
        && !NOT_STORED.contains(&plural)
        && !PARTS_WITHOUT_OBJECT.contains(&place.part)
        && !draft.query().contains("dryRun");
    let object = Stored::new(subject, place.collection, name);
    let mut accepted = false;
    if !name.is_empty() && (stored || place.name == seeds::NAME) && object.exists() {
        if stored {
            accepted = true;
            // This program cannot read deeper ones to compare them.
            if mutate::depth(&answer.body) > MAX_DEPTH {
                object.check_reads()?;
            } else {
                object.check()?;
            }
        }
        object.delete()?;
    }
    Ok(Outcome {
        accepted,
        answer: format!("{} {plural} {} {}", draft.method, place.part, answer.digest()),
        allocated,
    })
}
