//! The content of a Secret or ConfigMap, which is zeroed when dropped and cannot be formatted.
//!
//! ```text
//!   response ──► ZeroizedBuffer ──► Content (each value zeroed on drop)
//!                                     │ shared by Arc: one for all copies of a source
//!   request  ◄── ZeroizedBuffer ◄─────┘
//! ```
//!
//! Values of Secrets stay base64 from the response to the request: nothing is decoded. The buffers of the HTTP and
//! TLS libraries cannot be zeroed.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, de};
use windlass::{k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta, kube::api::ObjectMeta};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    api::SourceKind, content_budget::Reservation, digest::DigestBuilder, filter::LAST_APPLIED_ANNOTATION,
};

/// Shorter values, and shorter parts of values, may occur in a text by chance.
const MIN_VALUE_LEN: usize = 4;
const MIN_PART_LEN: usize = 8;

/// A value that is zeroed when dropped. It cannot be formatted: not in logs, not in panics.
#[derive(PartialEq, Eq)]
pub(crate) struct SecretValue(Zeroizing<Box<str>>);

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = SecretValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            // Allocates exactly once, since growing would leave copies behind.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SecretValue, E> {
                Ok(SecretValue(Zeroizing::new(text.into())))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<SecretValue, E> {
                let text = Zeroizing::new(text);
                self.visit_str(&text)
            }

            fn visit_unit<E: de::Error>(self) -> Result<SecretValue, E> {
                self.visit_str("")
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A buffer that is zeroed when dropped.
#[derive(Default)]
pub(crate) struct ZeroizedBuffer(Zeroizing<Vec<u8>>);

impl ZeroizedBuffer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    /// Grows by hand: a growing `Vec` would leave its old allocation behind.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// Appends a part of a response, and zeroes that part if it is not shared.
    pub(crate) fn append_and_zero(&mut self, part: Bytes) {
        self.push(&part);
        if let Ok(mut part) = part.try_into_mut() {
            part.as_mut().zeroize();
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for ZeroizedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::io::Write for ZeroizedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A whole Secret or ConfigMap. Its `Debug` output contains no value.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Content {
    pub(crate) metadata: ObjectMeta,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    immutable: Option<bool>,
    #[serde(default)]
    data: Option<BTreeMap<String, SecretValue>>,
    #[serde(default)]
    binary_data: Option<BTreeMap<String, SecretValue>>,
    /// The `last-applied-configuration` annotation of `kubectl apply`, which repeats the values. Kept to be written
    /// back.
    #[serde(skip)]
    last_applied: Option<SecretValue>,
    /// The share of the content budget that a source holds.
    #[serde(skip)]
    pub(crate) reservation: Option<Reservation>,
}

impl Content {
    /// Parses an object.
    pub(crate) fn parse(answer: &ZeroizedBuffer) -> Result<Self, String> {
        Ok(parse::<Self>(answer)?.hide_last_applied())
    }

    /// Parses a page of a list. Returns its objects, and the token of the next page; empty if it was the last one.
    pub(crate) fn parse_page(answer: &ZeroizedBuffer) -> Result<(Vec<Self>, String), String> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            metadata: ListMeta,
            #[serde(default)]
            items: Vec<Content>,
        }
        let page: Page = parse(answer)?;
        let items = page.items.into_iter().map(Self::hide_last_applied).collect();
        Ok((items, page.metadata.continue_.unwrap_or_default()))
    }

    /// Moves the annotation that repeats the values out of the metadata.
    fn hide_last_applied(mut self) -> Self {
        let annotations = self.metadata.annotations.as_mut();
        if let Some(applied) = annotations.and_then(|all| all.remove(LAST_APPLIED_ANNOTATION)) {
            let applied = Zeroizing::new(applied);
            self.last_applied = Some(SecretValue(Zeroizing::new(applied.as_str().into())));
        }
        self
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Drops the `last-applied-configuration`: a source is held for long and never written back.
    pub(crate) fn drop_last_applied(&mut self) {
        self.last_applied = None;
    }

    /// Returns the bytes of all keys and values.
    pub(crate) fn size(&self) -> usize {
        self.values()
            .map(|(_, key, value)| key.len() + value.0.len())
            .sum()
    }

    pub(crate) fn version(&self) -> u64 {
        let version = self.metadata.resource_version.as_deref();
        version.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Returns the type of a Secret; empty for a ConfigMap.
    pub(crate) fn secret_type(&self) -> &str {
        self.secret_type.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    /// Returns the keys, in order: first `data`, then `binaryData`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (DataField, &str)> {
        self.values().map(|(field, key, _)| (field, key))
    }

    fn values(&self) -> impl Iterator<Item = (DataField, &str, &SecretValue)> {
        let data = self.data.iter().flatten();
        let binary = self.binary_data.iter().flatten();
        let data = data.map(|(key, value)| (DataField::Data, key.as_str(), value));
        data.chain(binary.map(|(key, value)| (DataField::BinaryData, key.as_str(), value)))
    }

    /// Returns whether its data equals that of `other` after filtering with `admits`.
    pub(crate) fn has_same_data(&self, other: &Self, admits: impl Fn(&str) -> bool) -> bool {
        self.values().eq(other.values().filter(|(_, key, _)| admits(key)))
    }

    /// Returns whether a text contains one of its values or a part of one, as it is or decoded. Short ones do not
    /// count: they occur in any text.
    pub(crate) fn is_quoted_in(&self, text: &str) -> bool {
        self.values().any(|(_, _, value)| {
            let decoded = BASE64.decode(value.0.as_bytes()).map(Zeroizing::new);
            let decoded = decoded
                .as_ref()
                .ok()
                .and_then(|bytes| std::str::from_utf8(bytes).ok());
            [Some(&**value.0), decoded]
                .into_iter()
                .flatten()
                .any(|value| quotes_value(text, value))
        })
    }

    /// Returns the JSON of an object with this type, this metadata and these values. `over` is the object that it
    /// replaces.
    pub(crate) fn body(
        &self,
        kind: SourceKind,
        secret_type: &str,
        metadata: &ObjectMeta,
        over: Option<&Self>,
        immutable: bool,
        admits: impl Fn(&str) -> bool,
    ) -> Bytes {
        let metadata = match over.and_then(|over| over.last_applied.as_ref()) {
            Some(applied) => with_last_applied(metadata, applied),
            None => ZeroizedBuffer(Zeroizing::new(
                serde_json::to_vec(metadata).expect("metadata serializes"),
            )),
        };
        let values: Vec<_> = self.values().filter(|(_, key, _)| admits(key)).collect();
        let size: usize = values
            .iter()
            .map(|(_, key, value)| key.len() + value.0.len() + 8)
            .sum();
        let mut body = ZeroizedBuffer::with_capacity(size + metadata.as_slice().len() + 256);
        body.push(br#"{"apiVersion":"v1","kind":""#);
        body.push(kind.name().as_bytes());
        body.push(br#"","metadata":"#);
        body.push(metadata.as_slice());
        if kind == SourceKind::Secret && !secret_type.is_empty() {
            body.push(br#","type":"#);
            body.push(quoted(secret_type).as_bytes());
        }
        if immutable {
            body.push(br#","immutable":true"#);
        }
        for field in [DataField::Data, DataField::BinaryData] {
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
                // Base64 needs no escapes; other text is escaped in pieces.
                serde_json::to_writer(&mut body, &**value.0).expect("writing to memory cannot fail");
            }
            body.push(b"}");
        }
        body.push(b"}");
        Bytes::from_owner(body)
    }

    /// Adds the data, after filtering with `admits`, and whether it is immutable.
    pub(crate) fn add_to(&self, digest: &mut DigestBuilder, admits: impl Fn(&str) -> bool) {
        digest.add([u8::from(self.is_immutable())]);
        for field in [DataField::Data, DataField::BinaryData] {
            let of_field = |(found, key, _): &(DataField, &str, _)| *found == field && admits(key);
            let values: Vec<_> = self.values().filter(of_field).collect();
            digest.add_all(
                values
                    .iter()
                    .map(|(_, key, value)| [key.as_bytes(), value.0.as_bytes()]),
            );
        }
    }
}

/// Parses a response. The error contains the position, never the text.
fn parse<T: de::DeserializeOwned>(answer: &ZeroizedBuffer) -> Result<T, String> {
    serde_json::from_slice(answer.as_slice()).map_err(|error| {
        format!(
            "cannot parse the server's response (line {}, column {})",
            error.line(),
            error.column()
        )
    })
}

/// Returns the JSON of metadata with the `last-applied-configuration`.
fn with_last_applied(metadata: &ObjectMeta, applied: &SecretValue) -> ZeroizedBuffer {
    let mut metadata = metadata.clone();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(LAST_APPLIED_ANNOTATION.to_owned(), applied.0.to_string());
    let mut json = ZeroizedBuffer::default();
    serde_json::to_writer(&mut json, &metadata).expect("writing to memory cannot fail");
    let annotations = metadata.annotations.as_mut();
    if let Some(mut applied) = annotations.and_then(|all| all.remove(LAST_APPLIED_ANNOTATION)) {
        applied.zeroize();
    }
    json
}

/// Returns whether a text contains a value, or a part of it between two characters that would be escaped in a
/// quotation: the lines of a key, the words of a JSON document.
fn quotes_value(text: &str, value: &str) -> bool {
    let is_escaped = |c: char| !matches!(c, ' '..='~') || "\"'\\<>&".contains(c);
    let mut parts = value.split(is_escaped);
    value.len() >= MIN_VALUE_LEN && text.contains(value)
        || parts.any(|part| part.len() >= MIN_PART_LEN && text.contains(part))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("strings serialize")
}

/// The field that a key is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataField {
    /// `data`.
    Data,
    /// `binaryData`, of a ConfigMap.
    BinaryData,
}

impl DataField {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::BinaryData => "binaryData",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "Y2FuYXJ5";

    fn content(json: &serde_json::Value) -> Content {
        let mut answer = ZeroizedBuffer::default();
        answer.append_and_zero(Bytes::from(json.to_string()));
        Content::parse(&answer).expect("a valid Secret")
    }

    fn secret() -> Content {
        content(&serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "a": CANARY, "b": "Yg==" },
            "metadata": { "name": "s", "uid": "u", "resourceVersion": "7", "annotations": { LAST_APPLIED_ANNOTATION: CANARY } },
        }))
    }

    #[test]
    fn debug_and_errors_never_show_values() {
        let text = format!("{:?}", secret());
        assert!(text.contains("\"a\"") && !text.contains(CANARY), "{text}");
        let mut broken = ZeroizedBuffer::default();
        broken.append_and_zero(Bytes::from(format!(
            "{{\"data\": {{\"a\": \"{CANARY}\"}}, \"metadata\": 3"
        )));
        let error = Content::parse(&broken).expect_err("truncated JSON");
        assert!(!error.contains(CANARY) && error.contains("line 1"), "{error}");
    }

    #[test]
    fn body_contains_only_admitted_keys() {
        let metadata = ObjectMeta {
            name: Some("s".to_owned()),
            ..ObjectMeta::default()
        };
        let body = secret().body(SourceKind::Secret, "Opaque", &metadata, None, true, |key| {
            key == "a"
        });
        let body: serde_json::Value = serde_json::from_slice(&body).expect("valid JSON");
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "type": "Opaque", "immutable": true,
            "data": { "a": CANARY },
        });
        assert_eq!(body, expected);
        let empty = secret().body(SourceKind::ConfigMap, "", &metadata, None, false, |_| false);
        let empty: serde_json::Value = serde_json::from_slice(&empty).expect("valid JSON");
        assert_eq!(
            empty,
            serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "s" } })
        );
    }

    #[test]
    fn last_applied_configuration_is_written_back_only_to_its_own_object() {
        let (there, metadata) = (secret(), secret().metadata);
        let body = |over| {
            let body = secret().body(SourceKind::Secret, "Opaque", &metadata, over, false, |_| true);
            serde_json::from_slice::<serde_json::Value>(&body).expect("valid JSON")
        };
        let annotation =
            |body: &serde_json::Value| body["metadata"]["annotations"][LAST_APPLIED_ANNOTATION].clone();
        assert_eq!(annotation(&body(Some(&there))), CANARY);
        assert!(annotation(&body(None)).is_null());
        let bare = content(&serde_json::json!({ "metadata": {} }));
        assert!(annotation(&body(Some(&bare))).is_null());
    }

    #[test]
    fn body_escapes_config_map_text() {
        let map = content(&serde_json::json!({
            "metadata": { "name": "c" }, "data": { "a": "x\n\"ä\u{1}" }, "binaryData": { "b": "AA==" },
        }));
        let body = map.body(
            SourceKind::ConfigMap,
            "",
            &ObjectMeta::default(),
            None,
            false,
            |_| true,
        );
        let body: serde_json::Value = serde_json::from_slice(&body).expect("valid JSON");
        assert_eq!(body["data"]["a"], "x\n\"ä\u{1}");
        assert_eq!(body["binaryData"]["b"], "AA==");
    }

    #[test]
    fn different_contents_have_different_digests() {
        let digest = |json: serde_json::Value, admits: fn(&str) -> bool| {
            let mut digest = DigestBuilder::new();
            content(&json).add_to(&mut digest, admits);
            digest.finish()
        };
        let whole = |json| digest(json, |_| true);
        let with = |data: serde_json::Value| whole(serde_json::json!({ "metadata": {}, "data": data }));
        let all = [
            with(serde_json::json!({})),
            with(serde_json::json!({ "a": "bc" })),
            with(serde_json::json!({ "ab": "c" })),
            with(serde_json::json!({ "a": "", "b": "c" })),
            whole(serde_json::json!({ "metadata": {}, "binaryData": { "a": "bc" } })),
            whole(serde_json::json!({ "metadata": {}, "immutable": true })),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
        }
        let filtered = digest(
            serde_json::json!({ "metadata": {}, "data": { "a": "bc", "x": "" } }),
            |key| key == "a",
        );
        assert_eq!(filtered, all[1]);
    }

    #[test]
    fn data_is_compared_after_filtering() {
        let whole = secret();
        let part = content(&serde_json::json!({ "metadata": {}, "data": { "a": CANARY } }));
        assert!(part.has_same_data(&whole, |key| key == "a"));
        assert!(!part.has_same_data(&whole, |_| true) && !whole.has_same_data(&part, |_| true));
    }

    #[test]
    fn quoted_values_are_detected() {
        for (text, expected) in [
            ("refused: Y2FuYXJ5 is weak", true),
            ("refused: canary is weak", true),
            ("refused: a is weak", false),
        ] {
            assert_eq!(secret().is_quoted_in(text), expected, "{text}");
        }
        // As a program quotes it: with escapes, or only the relevant part.
        let value = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nu1SU1LfVLPHCozMxH2Mo\n";
        let lines = content(&serde_json::json!({ "metadata": {}, "data": { "a": BASE64.encode(value) } }));
        for (text, expected) in [
            (format!("refused: {value:?}"), true),
            ("line 3 is u1SU1LfVLPHCozMxH2Mo".to_owned(), true),
            ("refused: BEGIN is missing".to_owned(), false),
        ] {
            assert_eq!(lines.is_quoted_in(&text), expected, "{text}");
        }
    }

    #[test]
    fn growing_buffer_keeps_its_content() {
        let mut buffer = ZeroizedBuffer::with_capacity(2);
        for part in ["abc", "", "defgh"] {
            buffer.push(part.as_bytes());
        }
        assert_eq!(buffer.as_slice(), b"abcdefgh");
    }
}
