//! Names of fields in expressions.
//!
//! A property whose name is no identifier has another name in CEL: `my-field` is `my__dash__field`.

/// Words that cannot be the name of a field as they are.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name in CEL of a property, or `None` if expressions cannot see it.
///
/// ```
/// assert_eq!(windlass_cel::escape("my-field").as_deref(), Some("my__dash__field"));
/// assert_eq!(windlass_cel::escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(windlass_cel::escape("0a"), None);
/// ```
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|sign: char| sign.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(sign) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match sign {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            '_' => escaped.push('_'),
            sign if sign.is_ascii_alphanumeric() => escaped.push(sign),
            _ => return None,
        }
        rest = &rest[sign.len_utf8()..];
    }
    Some(escaped)
}

/// Whether the name can be that of a variable: letters, digits and `_`, and no reserved word.
///
/// ```
/// assert!(windlass_cel::is_identifier("_max1"));
/// assert!(!windlass_cel::is_identifier("1max") && !windlass_cel::is_identifier("while"));
/// ```
pub fn is_identifier(name: &str) -> bool {
    let is_first = |letter: char| letter == '_' || letter.is_ascii_alphabetic();
    let is_letter = |letter: char| is_first(letter) || letter.is_ascii_digit();
    name.starts_with(is_first) && name.chars().all(is_letter) && !is_reserved(name)
}

/// Whether the name is a reserved word.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
