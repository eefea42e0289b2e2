//! Continue tokens in the real server's format, for tools that decode them.

use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use crate::{
    status::Status,
    storage::{Key, Revision},
};

/// The version of the format.
const FORMAT: &str = "meta.k8s.io/v1";

/// A continue token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    /// The revision of all pages; none for a list that continues with the current state.
    pub(super) revision: Option<Revision>,
    /// The last key of the previous page, `/namespace/name` or, inside one namespace, `/name`; ends with a NUL.
    start: String,
}

impl ContinueToken {
    /// The token that continues after a key.
    pub(super) fn after(key: &Key, revision: Revision, namespace: Option<&str>) -> Self {
        let start = match namespace {
            None if !key.namespace.is_empty() => format!("/{}/{}\0", key.namespace, key.name),
            _ => format!("/{}\0", key.name),
        };
        Self {
            revision: Some(revision),
            start,
        }
    }

    pub(super) fn encode(&self) -> String {
        let revision = self
            .revision
            .map_or_else(|| (-1).into(), |revision| json!(revision.0));
        let token = json!({"v": FORMAT, "rv": revision, "start": self.start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    pub(super) fn parse(text: &str) -> Result<Self, Status> {
        let refuse = |why: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            let offset = match error {
                DecodeError::InvalidByte(offset, _) | DecodeError::InvalidLastSymbol(offset, _) => offset,
                // Tokens are never padded.
                _ => text.find('=').unwrap_or(text.len()),
            };
            refuse(&format!("illegal base64 data at input byte {offset}"))
        })?;
        let (token, _) = crate::json::read(&bytes).map_err(|why| refuse(&why))?;
        if token["v"] != FORMAT {
            let version = token["v"].as_str().unwrap_or_default();
            return Err(refuse(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let revision = match token["rv"].as_i64() {
            None | Some(0) => {
                return Err(refuse(&format!(
                    "incorrect encoded start resourceVersion (version {FORMAT})"
                )));
            }
            Some(revision) => u64::try_from(revision).ok().map(Revision),
        };
        let start = token["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(refuse(&format!("encoded start key empty (version {FORMAT})")));
        }
        let key = start.strip_prefix('/').unwrap_or(start);
        // No path traversal out of the resource.
        if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(refuse(start));
        }
        Ok(Self {
            revision,
            start: key.to_owned(),
        })
    }

    /// The key that the list continues after.
    pub(super) fn key(&self, namespace: Option<&str>) -> Key {
        let start = self.start.trim_start_matches('/').trim_end_matches('\0');
        match (namespace, start.split_once('/')) {
            (Some(namespace), _) => Key::new(namespace, start),
            (None, Some((namespace, name))) => Key::new(namespace, name),
            (None, None) => Key::new("", start),
        }
    }

    /// The error for a token whose revision was compacted, with a token that continues with the current state.
    pub(super) fn into_expired_status(self) -> Status {
        let other = Self {
            revision: None,
            ..self
        };
        Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        )
        .with_continue(other.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_token_round_trips_its_key() {
        for (namespace, key) in [
            (None, Key::new("a", "x")),
            (Some("a"), Key::new("a", "x")),
            (None, Key::new("", "x")),
        ] {
            let token = ContinueToken::after(&key, Revision(9), namespace);
            let read = ContinueToken::parse(&token.encode()).expect("own token");
            assert_eq!((read.key(namespace), read.revision), (key, Some(Revision(9))));
        }
        // Tokens of a real server: of a list inside one namespace, and of a second page.
        for (text, start) in [
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Im5va2luZFx1MDAwMCJ9",
                "nokind",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9wZzFcdTAwMDAifQ",
                "pg1",
            ),
        ] {
            let token = ContinueToken::parse(text).expect("the real server's token");
            assert_eq!(
                (token.revision, token.key(Some("default"))),
                (Some(Revision(359)), Key::new("default", start))
            );
        }
        assert!(ContinueToken::parse("bm9wZQ").is_err());
    }

    #[test]
    fn expired_token_error_has_a_token_to_continue() {
        let key = Key::new("a", "x");
        let status = ContinueToken::after(&key, Revision(9), Some("a")).into_expired_status();
        let other = status.to_value()["metadata"]["continue"].clone();
        let other = ContinueToken::parse(other.as_str().expect("a token")).expect("own token");
        assert_eq!((other.key(Some("a")), other.revision), (key, None));
    }
}
