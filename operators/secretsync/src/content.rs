//! What a Secret or ConfigMap holds, kept so that it is zeroed when it is dropped and cannot be shown.
//!
//! ```text
//!   response ──► Wiped (our buffer, zeroed) ──► Content (values zeroed one by one)
//!                                                  │ shared by Arc: one for all copies of a source
//!   request  ◄── Wiped (our buffer, zeroed) ◄──────┘
//! ```
//!
//! Values of Secrets stay base64 from the response to the request: nothing is decoded. What cannot be zeroed are the buffers of
//! the HTTP and TLS libraries, which a response passes through before and a request after.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use ring::digest;
use serde::{Deserialize, Deserializer, de};
use windlass::kube::api::ObjectMeta;
use zeroize::{Zeroize, Zeroizing};

use crate::{api::SourceKind, meter::Reservation, policy::LAST_APPLIED};

/// Values shorter than this may be in a text by chance, and so may parts of values.
const SHORT: usize = 4;
const SHORT_PART: usize = 8;

/// A value that is zeroed when it is dropped. It has no text of its own: not in logs, not in panics.
#[derive(PartialEq, Eq)]
pub(crate) struct Hidden(Zeroizing<Box<str>>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Hidden;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            // Exactly as large as needed, so that nothing is left behind by growing.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hidden, E> {
                Ok(Hidden(Zeroizing::new(text.into())))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Hidden, E> {
                let text = Zeroizing::new(text);
                self.visit_str(&text)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Hidden, E> {
                self.visit_str("")
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A buffer that is zeroed when it is dropped.
#[derive(Default)]
pub(crate) struct Wiped(Zeroizing<Vec<u8>>);

impl Wiped {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    /// Growing by hand: a vector that grows by itself leaves what it had where it was.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// Takes a part of a response, and zeroes it where nobody else has it.
    pub(crate) fn absorb(&mut self, part: Bytes) {
        self.push(&part);
        if let Ok(mut part) = part.try_into_mut() {
            part.as_mut().zeroize();
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A Secret or ConfigMap, whole. Its `Debug` shows no value.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Content {
    pub(crate) metadata: ObjectMeta,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    immutable: Option<bool>,
    #[serde(default)]
    data: Option<BTreeMap<String, Hidden>>,
    #[serde(default)]
    binary_data: Option<BTreeMap<String, Hidden>>,
    /// What `kubectl apply` repeats of the values, kept so that who writes the object back does not lose it.
    #[serde(skip)]
    applied: Option<Hidden>,
    /// Of a source: what it counts for as long as it is held.
    #[serde(skip)]
    pub(crate) reservation: Option<Reservation>,
}

impl Content {
    /// Reads what the server answered. The error says where, never what.
    pub(crate) fn read(answer: &Wiped) -> Result<Self, String> {
        let mut content: Self = serde_json::from_slice(answer.as_slice()).map_err(|error| {
            format!(
                "the server's answer cannot be read (line {}, column {})",
                error.line(),
                error.column()
            )
        })?;
        let annotations = content.metadata.annotations.as_mut();
        // It repeats the values.
        if let Some(applied) = annotations.and_then(|all| all.remove(LAST_APPLIED)) {
            let applied = Zeroizing::new(applied);
            content.applied = Some(Hidden(Zeroizing::new(applied.as_str().into())));
        }
        Ok(content)
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// A source is never written back, and is held for long: what `kubectl apply` repeats of it goes at once.
    pub(crate) fn forget_applied(&mut self) {
        self.applied = None;
    }

    /// How much it takes, as far as it can be large.
    pub(crate) fn size(&self) -> usize {
        self.values()
            .map(|(_, key, value)| key.len() + value.0.len())
            .sum()
    }

    pub(crate) fn version(&self) -> u64 {
        let version = self.metadata.resource_version.as_deref();
        version.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Of a Secret; empty for a ConfigMap.
    pub(crate) fn secret_type(&self) -> &str {
        self.secret_type.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    /// The names of what it holds, in order: first `data`, then `binaryData`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Field, &str)> {
        self.values().map(|(field, key, _)| (field, key))
    }

    fn values(&self) -> impl Iterator<Item = (Field, &str, &Hidden)> {
        let data = self.data.iter().flatten();
        let binary = self.binary_data.iter().flatten();
        let data = data.map(|(key, value)| (Field::Data, key.as_str(), value));
        data.chain(binary.map(|(key, value)| (Field::BinaryData, key.as_str(), value)))
    }

    /// Whether it holds the same as what `other` would have after leaving out what `admits` refuses.
    pub(crate) fn holds(&self, other: &Self, admits: impl Fn(&str) -> bool) -> bool {
        self.values().eq(other.values().filter(|(_, key, _)| admits(key)))
    }

    /// Whether a text repeats one of its values, or a part of one, as it is or decoded. Short ones do not count: they are in
    /// every text.
    pub(crate) fn appears_in(&self, text: &str) -> bool {
        self.values().any(|(_, _, value)| {
            let decoded = BASE64.decode(value.0.as_bytes()).map(Zeroizing::new);
            let decoded = decoded
                .as_ref()
                .ok()
                .and_then(|bytes| std::str::from_utf8(bytes).ok());
            [Some(&**value.0), decoded]
                .into_iter()
                .flatten()
                .any(|value| repeats(text, value))
        })
    }

    /// The JSON of an object with this metadata and these values, ready to be sent. `over` is what it is written over.
    pub(crate) fn body(
        &self,
        kind: SourceKind,
        metadata: &ObjectMeta,
        over: Option<&Self>,
        immutable: bool,
        admits: impl Fn(&str) -> bool,
    ) -> Bytes {
        let metadata = match over.and_then(|over| over.applied.as_ref()) {
            Some(applied) => with_applied(metadata, applied),
            None => Wiped(Zeroizing::new(
                serde_json::to_vec(metadata).expect("metadata is JSON"),
            )),
        };
        let values: Vec<_> = self.values().filter(|(_, key, _)| admits(key)).collect();
        let size: usize = values
            .iter()
            .map(|(_, key, value)| key.len() + value.0.len() + 8)
            .sum();
        let mut body = Wiped::with_capacity(size + metadata.as_slice().len() + 256);
        body.push(br#"{"apiVersion":"v1","kind":""#);
        body.push(kind.name().as_bytes());
        body.push(br#"","metadata":"#);
        body.push(metadata.as_slice());
        if kind == SourceKind::Secret && !self.secret_type().is_empty() {
            body.push(br#","type":"#);
            body.push(quoted(self.secret_type()).as_bytes());
        }
        if immutable {
            body.push(br#","immutable":true"#);
        }
        for field in [Field::Data, Field::BinaryData] {
            let mut of_field = values.iter().filter(|(found, ..)| *found == field).peekable();
            if of_field.peek().is_none() {
                continue;
            }
            body.push(b",\"");
            body.push(field.name().as_bytes());
            body.push(b"\":{");
            for (number, (_, key, value)) in of_field.enumerate() {
                if number > 0 {
                    body.push(b",");
                }
                body.push(quoted(key).as_bytes());
                body.push(b":");
                // Base64 needs no escapes, and what does is written in pieces.
                serde_json::to_writer(&mut body, &**value.0).expect("memory takes it");
            }
            body.push(b"}");
        }
        body.push(b"}");
        Bytes::from_owner(body)
    }

    /// A digest of what a copy would hold, with the labels and annotations that it would have.
    pub(crate) fn digest(
        &self,
        admits: impl Fn(&str) -> bool,
        metadata: [&BTreeMap<String, String>; 2],
    ) -> Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        // Each part with its length, so that no two contents read alike.
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        };
        // Two sources that hold the same do not show it.
        add(self.uid().as_bytes());
        add(self.secret_type().as_bytes());
        add(&[u8::from(self.is_immutable())]);
        for (field, key, value) in self.values().filter(|(_, key, _)| admits(key)) {
            add(field.name().as_bytes());
            add(key.as_bytes());
            add(value.0.as_bytes());
        }
        for map in metadata {
            add(b"metadata");
            for (name, value) in map {
                add(name.as_bytes());
                add(value.as_bytes());
            }
        }
        let mut found = [0; 32];
        found.copy_from_slice(context.finish().as_ref());
        Digest(found)
    }
}

/// The JSON of metadata with what `kubectl apply` repeats of the values.
fn with_applied(metadata: &ObjectMeta, applied: &Hidden) -> Wiped {
    let mut metadata = metadata.clone();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(LAST_APPLIED.to_owned(), applied.0.to_string());
    let mut json = Wiped::default();
    serde_json::to_writer(&mut json, &metadata).expect("memory takes it");
    let annotations = metadata.annotations.as_mut();
    if let Some(mut applied) = annotations.and_then(|all| all.remove(LAST_APPLIED)) {
        applied.zeroize();
    }
    json
}

/// Whether a text has a value in it, or what is between two characters of it that whoever quotes it would escape: the lines of a
/// key, the words of a JSON document.
fn repeats(text: &str, value: &str) -> bool {
    let is_escaped = |c: char| !matches!(c, ' '..='~') || "\"'\\<>&".contains(c);
    let mut parts = value.split(is_escaped);
    value.len() >= SHORT && text.contains(value)
        || parts.any(|part| part.len() >= SHORT_PART && text.contains(part))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    /// `data`.
    Data,
    /// `binaryData`, of a ConfigMap.
    BinaryData,
}

impl Field {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::BinaryData => "binaryData",
        }
    }
}

/// Tells contents apart without holding them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "Y2FuYXJ5";

    fn content(json: &serde_json::Value) -> Content {
        let mut answer = Wiped::default();
        answer.absorb(Bytes::from(json.to_string()));
        Content::read(&answer).expect("it is a Secret")
    }

    fn secret() -> Content {
        content(&serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "a": CANARY, "b": "Yg==" },
            "metadata": { "name": "s", "uid": "u", "resourceVersion": "7", "annotations": { LAST_APPLIED: CANARY } },
        }))
    }

    #[test]
    fn a_value_is_never_shown() {
        let text = format!("{:?}", secret());
        assert!(text.contains("\"a\"") && !text.contains(CANARY), "{text}");
        let mut broken = Wiped::default();
        broken.absorb(Bytes::from(format!(
            "{{\"data\": {{\"a\": \"{CANARY}\"}}, \"metadata\": 3"
        )));
        let error = Content::read(&broken).expect_err("it is cut off");
        assert!(!error.contains(CANARY) && error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_body_holds_what_is_admitted() {
        let metadata = ObjectMeta {
            name: Some("s".to_owned()),
            ..ObjectMeta::default()
        };
        let body = secret().body(SourceKind::Secret, &metadata, None, true, |key| key == "a");
        let body: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "type": "Opaque", "immutable": true,
            "data": { "a": CANARY },
        });
        assert_eq!(body, expected);
        let empty = secret().body(SourceKind::ConfigMap, &metadata, None, false, |_| false);
        let empty: serde_json::Value = serde_json::from_slice(&empty).expect("it is JSON");
        assert_eq!(
            empty,
            serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "s" } })
        );
    }

    #[test]
    fn last_applied_configuration_goes_back_to_its_own_object_only() {
        let (there, metadata) = (secret(), secret().metadata);
        let body = |over| {
            let body = secret().body(SourceKind::Secret, &metadata, over, false, |_| true);
            serde_json::from_slice::<serde_json::Value>(&body).expect("it is JSON")
        };
        let annotation = |body: &serde_json::Value| body["metadata"]["annotations"][LAST_APPLIED].clone();
        assert_eq!(annotation(&body(Some(&there))), CANARY);
        assert!(annotation(&body(None)).is_null());
        let bare = content(&serde_json::json!({ "metadata": {} }));
        assert!(annotation(&body(Some(&bare))).is_null());
    }

    #[test]
    fn a_body_escapes_what_a_config_map_may_hold() {
        let map = content(&serde_json::json!({
            "metadata": { "name": "c" }, "data": { "a": "x\n\"ä\u{1}" }, "binaryData": { "b": "AA==" },
        }));
        let body = map.body(SourceKind::ConfigMap, &ObjectMeta::default(), None, false, |_| {
            true
        });
        let body: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
        assert_eq!(body["data"]["a"], "x\n\"ä\u{1}");
        assert_eq!(body["binaryData"]["b"], "AA==");
    }

    #[test]
    fn contents_that_differ_have_digests_that_differ() {
        let none = BTreeMap::new();
        let label = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let digest = |json: serde_json::Value| content(&json).digest(|_| true, [&none, &none]);
        let with = |data: serde_json::Value| digest(serde_json::json!({ "metadata": {}, "data": data }));
        let all = [
            with(serde_json::json!({})),
            with(serde_json::json!({ "a": "bc" })),
            with(serde_json::json!({ "ab": "c" })),
            with(serde_json::json!({ "a": "", "b": "c" })),
            digest(serde_json::json!({ "metadata": {}, "binaryData": { "a": "bc" } })),
            digest(serde_json::json!({ "metadata": {}, "type": "t" })),
            digest(serde_json::json!({ "metadata": { "uid": "u" } })),
            digest(serde_json::json!({ "metadata": {}, "immutable": true })),
            content(&serde_json::json!({ "metadata": {} })).digest(|_| true, [&label, &none]),
            content(&serde_json::json!({ "metadata": {} })).digest(|_| true, [&none, &label]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
            assert!(Digest::parse(&one.to_string()) == Some(*one));
        }
        assert!(Digest::parse("ä").is_none() && Digest::parse(&"zz".repeat(32)).is_none());
    }

    #[test]
    fn what_is_held_is_compared_after_the_filter() {
        let whole = secret();
        let part = content(&serde_json::json!({ "metadata": {}, "data": { "a": CANARY } }));
        assert!(part.holds(&whole, |key| key == "a"));
        assert!(!part.holds(&whole, |_| true) && !whole.holds(&part, |_| true));
    }

    #[test]
    fn a_text_that_repeats_a_value_is_recognised() {
        for (text, expected) in [
            ("refused: Y2FuYXJ5 is weak", true),
            ("refused: canary is weak", true),
            ("refused: a is weak", false),
        ] {
            assert_eq!(secret().appears_in(text), expected, "{text}");
        }
        // As a program quotes it: with escapes, or only the part that it is about.
        let value = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nu1SU1LfVLPHCozMxH2Mo\n";
        let lines = content(&serde_json::json!({ "metadata": {}, "data": { "a": BASE64.encode(value) } }));
        for (text, expected) in [
            (format!("refused: {value:?}"), true),
            ("line 3 is u1SU1LfVLPHCozMxH2Mo".to_owned(), true),
            ("refused: BEGIN is missing".to_owned(), false),
        ] {
            assert_eq!(lines.appears_in(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_buffer_that_grows_keeps_what_it_had() {
        let mut buffer = Wiped::with_capacity(2);
        for part in ["abc", "", "defgh"] {
            buffer.push(part.as_bytes());
        }
        assert_eq!(buffer.as_slice(), b"abcdefgh");
    }
}
