//! A minimal tokenizer for Rust, enough to find functions, loops and closures.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword.
    Word,
    /// A string, character, number or lifetime.
    Literal,
    /// One character of punctuation, including brackets.
    Mark(u8),
}

/// A token and its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind,
    pub(crate) text: &'t str,
    pub(crate) start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn is(&self, mark: u8) -> bool {
        self.kind == Kind::Mark(mark)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    pub(crate) fn opens(&self) -> bool {
        matches!(self.kind, Kind::Mark(b'(' | b'[' | b'{'))
    }

    pub(crate) fn closes(&self) -> bool {
        matches!(self.kind, Kind::Mark(b')' | b']' | b'}'))
    }
}

/// The tokens of a file, without comments and whitespace.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut place = 0;
    while let Some(&byte) = bytes.get(place) {
        let rest = &text[place..];
        let (kind, length) = match byte {
            _ if byte.is_ascii_whitespace() => (None, 1),
            b'/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            b'/' if rest.starts_with("/*") => (None, rest.find("*/").map_or(rest.len(), |end| end + 2)),
            b'"' => (Some(Kind::Literal), quoted(rest, 0)),
            b'\'' => (Some(Kind::Literal), character_or_lifetime(rest)),
            b'b' | b'c' | b'r' if prefixed_string(rest).is_some() => (
                Some(Kind::Literal),
                prefixed_string(rest).expect("checked by the guard"),
            ),
            b'b' if rest.starts_with("b'") => (Some(Kind::Literal), 1 + character_or_lifetime(&rest[1..])),
            b'0'..=b'9' => (Some(Kind::Literal), number(rest)),
            _ if byte == b'_' || byte.is_ascii_alphabetic() => (Some(Kind::Word), word(rest)),
            _ if byte.is_ascii() => (Some(Kind::Mark(byte)), 1),
            _ => (None, rest.chars().next().map_or(1, char::len_utf8)),
        };
        if let Some(kind) = kind {
            tokens.push(Token {
                kind,
                text: &rest[..length],
                start: place,
            });
        }
        place += length;
    }
    tokens
}

fn word(rest: &str) -> usize {
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    rest.find(|c| !is_part(c)).unwrap_or(rest.len())
}

/// `1_000u64`, `0xff`, `1.5`; not the dots of `0..4`, nor that of `1.max(2)`.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    let fraction = rest[whole..].strip_prefix('.').unwrap_or_default();
    if fraction.starts_with(|c: char| c.is_ascii_digit()) {
        whole + 1 + word(fraction)
    } else {
        whole
    }
}

/// The length of a string whose opening quote is at `open`.
fn quoted(rest: &str, open: usize) -> usize {
    let bytes = rest.as_bytes();
    let mut place = open + 1;
    while let Some(byte) = bytes.get(place) {
        match byte {
            b'\\' => place += 2,
            b'"' => return place + 1,
            _ => place += 1,
        }
    }
    rest.len()
}

/// The length of `b"…"`, `r"…"`, `br#"…"#` and their like.
fn prefixed_string(rest: &str) -> Option<usize> {
    let prefix = rest.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    if prefix > 2 {
        return None;
    }
    let fence = rest[prefix..].find(|c| c != '#')?;
    if rest.as_bytes().get(prefix + fence) != Some(&b'"') {
        return None;
    }
    if !rest[..prefix].contains('r') {
        return (fence == 0).then(|| quoted(rest, prefix));
    }
    let close = format!("\"{}", "#".repeat(fence));
    let start = prefix + fence + 1;
    Some(start + rest[start..].find(&close)? + close.len())
}

/// `'a'`, `'\n'` or `'static`.
fn character_or_lifetime(rest: &str) -> usize {
    let mut inner = rest[1..].chars();
    match inner.next() {
        Some('\\') => {
            // The escaped character may be a quote.
            3 + rest[3..].find('\'').map_or(0, |end| end + 1)
        }
        Some(c) if inner.next() == Some('\'') => 2 + c.len_utf8(),
        _ => 1 + word(&rest[1..]),
    }
}
