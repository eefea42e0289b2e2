//! Writes of objects in every encoding and patch type.

use fastrand::Rng;

use super::{
    readable::StoredObject,
    request::Draft,
    seeds::{self, BaseObjects},
    test_server::TestServer,
};
use crate::{
    engine::{Outcome, Target},
    invariants::{COPIED_BYTES, MAX_DEPTH, Meter, Violation},
    mutate,
};

/// Resources whose objects are not stored.
const NOT_STORED: [&str; 6] = [
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "selfsubjectreviews",
    "localsubjectaccessreviews",
];

/// Subresources that do not return the object itself.
const SUBRESOURCES_WITHOUT_OBJECT: [&str; 5] = ["eviction", "binding", "token", "scale", "log"];

/// Requests with a body, from seeds of one kind.
pub(super) struct Writes {
    server: TestServer,
    base_objects: BaseObjects,
    make_seeds: fn(&TestServer, &BaseObjects) -> Vec<Draft>,
}

impl Writes {
    pub(super) fn new(make_seeds: fn(&TestServer, &BaseObjects) -> Vec<Draft>) -> Self {
        Self {
            server: TestServer::new(),
            base_objects: seeds::base_objects(),
            make_seeds,
        }
    }
}

/// A resource path: collection, object name and subresource.
pub(super) struct ResourcePath<'a> {
    pub(super) collection: &'a str,
    pub(super) name: &'a str,
    pub(super) subresource: &'a str,
}

impl<'a> ResourcePath<'a> {
    pub(super) fn of(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        // An empty segment, `api` or `apis`, version or group and version, then an optional namespace.
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
            subresource: parts.get(plural + 2).copied().unwrap_or_default(),
        })
    }
}

impl Target for Writes {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let seeds = (self.make_seeds)(&self.server, &self.base_objects);
        seeds.iter().map(Draft::to_bytes).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut draft = Draft::parse(input);
        draft.mutate(&Draft::parse(donor), rng);
        draft.to_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.server.next_input();
        let draft = Draft::parse(input);
        let result = run_one(&self.server, &self.base_objects, &draft, input.len());
        if result.is_err() {
            // Keep this failure from affecting the next input.
            self.server.reset();
        }
        result
    }
}

fn run_one(
    server: &TestServer,
    base_objects: &BaseObjects,
    draft: &Draft,
    length: usize,
) -> Result<Outcome, Violation> {
    let (Some(request), Some(resource)) = (draft.build(), ResourcePath::of(draft.path())) else {
        return Ok(Outcome::default());
    };
    if resource.name == seeds::NAME
        && let Some(base) = base_objects.get(resource.collection)
    {
        let created = server.send("POST", resource.collection, &[], base.to_string().into());
        created.check()?;
    }
    let meter = Meter::start();
    let response = server.call(request);
    let allocated = if draft.is_json_patch() && meter.allocated() < COPIED_BYTES {
        meter.allocated()
    } else {
        meter.check(length)?
    };
    response.check()?;
    let returned_object = response.json();
    let name = match resource.name {
        "" => returned_object["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    };
    let plural = resource.collection.rsplit('/').next().unwrap_or_default();
    let stored = response.is_success()
        && !name.is_empty()
        && !name.contains('/')
        && matches!(draft.method.as_str(), "POST" | "PUT" | "PATCH")
        && !NOT_STORED.contains(&plural)
        && !SUBRESOURCES_WITHOUT_OBJECT.contains(&resource.subresource)
        && !draft.query().contains("dryRun");
    let object = StoredObject::new(server, resource.collection, name);
    let mut accepted = false;
    if !name.is_empty() && (stored || resource.name == seeds::NAME) && object.exists() {
        if stored {
            accepted = true;
            // The fuzzer cannot parse deeper objects to compare them.
            if mutate::depth(&response.body) > MAX_DEPTH {
                object.check_reads()?;
            } else {
                object.check()?;
            }
        }
        object.delete()?;
    }
    Ok(Outcome {
        accepted,
        fingerprint: format!(
            "{} {plural} {} {}",
            draft.method,
            resource.subresource,
            response.digest()
        ),
        allocated,
    })
}
