//! Files: podwatch's state file and kubeconfigs.

use std::fs;

use fastrand::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_podwatch::journal::Journal as StateFile;
use windlass_runtime::Connection;

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{bytes, tree},
};

/// podwatch's record of what each sink has confirmed, which survives restarts.
pub(super) struct Journal {
    folder: TempDir,
}

impl Journal {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
        })
    }
}

impl Target for Journal {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let uid = "6f1c3f0e-3a6d-4d36-8d3c-1f6f0e3a6d4d";
        let files = [
            json!({"podwatch": 1, "scopes": {}}),
            json!({"podwatch": 1, "scopes": {"pods": {"file": {"complete": true, "objects": {"shop/web": format!("{uid}@17"), "node": "other@0"}}}}}),
            json!({"podwatch": 1, "scopes": {"pods": {"a": {"complete": false, "objects": {}, "offered": {"shop/web": uid, "x/y/z": ""}}, "b": {"complete": true, "objects": {"a": "@18446744073709551615"}}}}}),
            json!({"podwatch": 2, "scopes": []}),
        ];
        files.iter().map(|file| file.to_string().into_bytes()).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        mutate_json(input, donor, rng)
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let path = self.folder.path().join("state");
        fs::write(&path, input)
            .map_err(|error| Invariant::WellFormed.violated(format!("the fuzzer cannot write: {error}")))?;
        let meter = Meter::start();
        let read = StateFile::open(&path);
        let allocated = meter.check(input.len())?;
        let journal = match read {
            Ok(journal) => journal,
            Err(error) => {
                // The message contains the file name without quotes.
                let text = error.to_string().replace(&*path.to_string_lossy(), "");
                return Ok(Outcome {
                    fingerprint: digest(&text),
                    allocated,
                    ..Outcome::default()
                });
            }
        };
        let record = journal.initial_contents().clone();
        let again = journal
            .write(|| record.clone())
            .map_err(|error| error.to_string())
            .and_then(|()| {
                drop(journal);
                StateFile::open(&path).map_err(|error| error.to_string())
            });
        match again {
            Ok(journal) if *journal.initial_contents() == record => {}
            Ok(journal) => {
                let (before, after) = (&record, journal.initial_contents());
                return Err(Invariant::ReadableAgain.violated(format!("written {before:?}, read {after:?}")));
            }
            Err(error) => return Err(Invariant::ReadableAgain.violated(error)),
        }
        Ok(Outcome {
            accepted: true,
            fingerprint: format!("{} scopes", record.len()),
            allocated,
        })
    }
}

fn mutate_json(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    match serde_json::from_slice::<Value>(input) {
        Ok(mut value) if rng.u8(..4) > 0 => {
            let donor = serde_json::from_slice(donor).unwrap_or(Value::Null);
            tree::mutate(&mut value, &donor, rng);
            tree::text(&value, rng).into_bytes()
        }
        _ => bytes::mutate(input, donor, rng),
    }
}

/// Kubeconfig files, up to the creation of a client; nothing is sent.
pub(super) struct Kubeconfig {
    folder: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Kubeconfig {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
        })
    }
}

impl Target for Kubeconfig {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let config = |cluster: Value, user: Value| {
            json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c", "preferences": {},
                "clusters": [{"name": "k", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
            })
        };
        let server = "https://127.0.0.1:6443";
        let files = [
            config(
                json!({"server": server, "insecure-skip-tls-verify": true}),
                json!({"token": "t"}),
            ),
            config(
                json!({"server": server, "certificate-authority-data": "bm9wZQ==", "tls-server-name": "a", "proxy-url": "http://127.0.0.1:1"}),
                json!({"client-certificate-data": "bm9wZQ==", "client-key-data": "bm9wZQ=="}),
            ),
            config(
                json!({"server": "http://[::1]:80/path"}),
                json!({"username": "a", "password": "b"}),
            ),
            config(
                json!({"server": server}),
                json!({"tokenFile": "/dev/null", "as": "x", "as-groups": ["y"]}),
            ),
            json!({"apiVersion": "v1", "kind": "Config", "clusters": null, "users": [], "contexts": []}),
        ];
        let yaml = files
            .iter()
            .map(|file| serde_yaml_ng::to_string(file).unwrap_or_default());
        yaml.map(String::into_bytes).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let read = |bytes: &[u8]| serde_yaml_ng::from_slice::<Value>(bytes).ok();
        match read(input) {
            Some(mut value) if rng.u8(..4) > 0 => {
                tree::mutate(&mut value, &read(donor).unwrap_or_default(), rng);
                serde_yaml_ng::to_string(&value).unwrap_or_default().into_bytes()
            }
            _ => bytes::mutate(input, donor, rng),
        }
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        // Skip inputs that name an `exec` program or another file, which would be run or read.
        if [&b"exec"[..], b"auth-provider", b"command", b"/dev/z", b"/proc"]
            .iter()
            .any(|word| input.windows(word.len()).any(|part| part == *word))
        {
            return Ok(Outcome::default());
        }
        let path = self.folder.path().join("config");
        fs::write(&path, input)
            .map_err(|error| Invariant::WellFormed.violated(format!("the fuzzer cannot write: {error}")))?;
        let mut connection = Connection::default();
        connection.kubeconfig = Some(path.clone());
        let meter = Meter::start();
        let client = self.runtime.block_on(connection.client());
        let allocated = meter.check(input.len())?;
        let fingerprint = match &client {
            Ok(_) => "a client".to_owned(),
            Err(error) => digest(&error.to_string().replace(&*path.to_string_lossy(), "")),
        };
        let accepted = client.is_ok();
        if accepted && self.runtime.block_on(connection.client()).is_err() {
            return Err(Invariant::ReadableAgain
                .violated("the same file yields a client the first time and an error the second time"));
        }
        Ok(Outcome {
            accepted,
            fingerprint,
            allocated,
        })
    }
}
