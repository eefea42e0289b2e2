//! A fast parser for ordinary JSON, which is nearly all that clients send.
//!
//! It reads the text once. It gives up on anything unusual (a syntax error, a duplicate field, a document that is too
//! deep), which the full parser then handles.

use serde_json::{Map, Value};

use crate::encode::special_bytes;

/// Parses a document; none if the full parser is needed, for example if it is deeper than `depth`.
pub(super) fn read(text: &str, depth: usize) -> Option<Value> {
    let mut reader = Reader { text, offset: 0 };
    let value = reader.value(depth)?;
    reader.skip_space();
    (reader.offset == text.len()).then_some(value)
}

struct Reader<'t> {
    text: &'t str,
    /// The offset of the next byte.
    offset: usize,
}

impl Reader<'_> {
    /// The next byte, without consuming it.
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.offset += 1;
        }
    }

    /// Consumes whitespace and the next byte.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let byte = self.peek()?;
        self.offset += 1;
        Some(byte)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        match self.next()? {
            b'"' => self.string().map(Value::String),
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.list(depth.checked_sub(1)?),
            b't' => self.literal("rue", Value::Bool(true)),
            b'f' => self.literal("alse", Value::Bool(false)),
            b'n' => self.literal("ull", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut fields = Map::new();
        let mut before = self.next()?;
        if before == b'}' {
            return Some(Value::Object(fields));
        }
        loop {
            if before != b'"' {
                return None;
            }
            let key = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            let value = self.value(depth)?;
            if fields.insert(key, value).is_some() {
                return None;
            }
            match self.next()? {
                b',' => before = self.next()?,
                b'}' => return Some(Value::Object(fields)),
                _ => return None,
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek()? == b']' {
            self.offset += 1;
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(Value::Array(items)),
                _ => return None,
            }
        }
    }

    fn literal(&mut self, rest: &str, value: Value) -> Option<Value> {
        let end = self.offset + rest.len();
        let found = self.text.as_bytes().get(self.offset..end)?;
        self.offset = end;
        (found == rest.as_bytes()).then_some(value)
    }

    /// Parses a string after its opening quote.
    fn string(&mut self) -> Option<String> {
        let start = self.offset;
        self.offset = find_special(self.text.as_bytes(), start)?;
        if self.peek()? == b'"' {
            self.offset += 1;
            return Some(self.text[start..self.offset - 1].to_owned());
        }
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.offset = find_special(self.text.as_bytes(), self.offset + 2)?,
                _ => return None,
            }
        }
        self.offset += 1;
        serde_json::from_str(&self.text[start - 1..self.offset]).ok()
    }

    /// Parses a number after its first byte.
    fn number(&mut self) -> Option<Value> {
        let start = self.offset - 1;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let rest = &self.text.as_bytes()[self.offset..];
        self.offset += rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let number = &self.text[start..self.offset];
        // Fast path for short unsigned integers.
        let plain = number.len() < 19 && number.bytes().all(|byte| byte.is_ascii_digit());
        if plain && (number.len() == 1 || !number.starts_with('0')) {
            let digits = number.bytes().map(|digit| u64::from(digit - b'0'));
            return Some(digits.fold(0, |number, digit| number * 10 + digit).into());
        }
        serde_json::from_str(number).ok()
    }
}

/// The offset of the next quote, backslash or control character.
fn find_special(text: &[u8], mut offset: usize) -> Option<usize> {
    while let Some(word) = text.get(offset..offset + 8) {
        let found = special_bytes(u64::from_le_bytes(word.try_into().expect("eight of them")));
        if found != 0 {
            return Some(offset + found.trailing_zeros() as usize / 8);
        }
        offset += 8;
    }
    let rest = text.get(offset..)?;
    let found = rest
        .iter()
        .position(|byte| matches!(byte, 0..b' ' | b'"' | b'\\'))?;
    Some(offset + found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(text: &str) -> Option<Value> {
        super::read(text, 100)
    }

    #[test]
    fn unusual_json_is_left_to_the_full_parser() {
        let deep = "[".repeat(101) + &"]".repeat(101);
        for text in [
            "",
            " ",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{\"a\":1,\"a\":1}",
            "{\"a\" 1}",
            "{1:2}",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[1 2]",
            "tru",
            "nul",
            "falsy",
            "x",
            "01",
            "-",
            "1.",
            "1e",
            "\"",
            "\"\n\"",
            "\"a\tb34567890\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "{} {}",
            &deep,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn ordinary_json_is_parsed() {
        let text = " {\"a\" : [ ] , \"é\\n\\u00e9\": [1, -2 ,3.5,1e3,-0,18446744073709551615, true,false,null,{}],\n\"long enough\\\" for more than eight\":\"\\\\\"} ";
        let value = read(text).expect("JSON");
        assert_eq!(value, serde_json::from_str::<Value>(text).expect("JSON"));
        assert_eq!(value["a"], json!([]));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z\"\\\\\n]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn result_equals_serde_json(value in tree()) {
            for text in [value.to_string(), format!("{value:#}")] {
                prop_assert_eq!(read(&text), serde_json::from_str(&text).ok());
            }
        }

        #[test]
        fn mangled_json_is_rejected_or_equals_serde_json(value in tree(), at in any::<prop::sample::Index>(), byte in 0_u8..128) {
            let mut text = value.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(text) = String::from_utf8(text)
                && let Some(read) = read(&text)
            {
                prop_assert_eq!(Some(read), serde_json::from_str(&text).ok());
            }
        }
    }
}
