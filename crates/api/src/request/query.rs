//! The query parameters of a request.

use percent_encoding::percent_decode_str;

/// The query parameters of a request, parsed like Go's `url.ParseQuery` and Kubernetes' conversions.
///
/// A malformed parameter (`%zz`, or with a `;` in it) is ignored, as in Go. Of a repeated parameter, the first value
/// counts, except where the API takes a list ([`Query::all`]).
///
/// ```
/// use windlass_api::request::Query;
///
/// let query = Query::parse(Some("watch=FALSE&force=&limit=5"));
/// assert!(!query.flag("watch"));
/// assert_eq!(query.optional_flag("force"), Some(true), "an empty value is not `false`");
/// assert_eq!(query.number("limit"), Ok(Some(5)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<Parameter>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    key: String,
    values: Vec<String>,
}

/// A parameter is not a number; displays like the error of Go's `strconv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNumber(String);

impl std::fmt::Display for InvalidNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = if is_integer(&self.0) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        write!(f, "strconv.ParseInt: parsing {:?}: {why}", self.0)
    }
}

impl std::error::Error for InvalidNumber {}

impl Query {
    /// Parses the part after the `?`.
    pub fn parse(query: Option<&str>) -> Self {
        // Sorted by key, so that many parameters cost no more than sorting them.
        let mut pairs: Vec<(String, String)> = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .filter_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((unescape(key)?, unescape(value)?))
            })
            .collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let mut parameters: Vec<Parameter> = Vec::new();
        for (key, value) in pairs {
            match parameters.last_mut() {
                Some(last) if last.key == key => last.values.push(value),
                _ => parameters.push(Parameter {
                    key,
                    values: vec![value],
                }),
            }
        }
        Self(parameters)
    }

    /// Returns the first value; an empty one counts as absent.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.all(key)
            .first()
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns all values of a parameter, in order.
    pub fn all(&self, key: &str) -> &[String] {
        match self.0.binary_search_by(|parameter| (*parameter.key).cmp(key)) {
            Ok(index) => &self.0[index].values,
            Err(_) => &[],
        }
    }

    /// Returns whether a boolean is set: true unless absent, `0` or `false` in any case.
    pub fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or(false)
    }

    /// Like [`Query::flag`], for booleans that may also be absent.
    pub fn optional_flag(&self, key: &str) -> Option<bool> {
        let value = self.all(key).first()?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Returns a numeric parameter. An empty value is an error.
    pub fn number(&self, key: &str) -> Result<Option<i64>, InvalidNumber> {
        let Some(text) = self.all(key).first() else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| InvalidNumber(text.clone()))
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes a key or a value; `None` if an escape is invalid.
fn unescape(text: &str) -> Option<String> {
    if !has_valid_escapes(text) {
        return None;
    }
    let text = text.replace('+', " ");
    Some(percent_decode_str(&text).decode_utf8_lossy().into_owned())
}

/// Returns whether two hexadecimal digits follow every `%`.
pub(super) fn has_valid_escapes(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().is_some_and(|byte| byte.is_ascii_hexdigit());
            if !(digit() && digit()) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_parsed_like_go() {
        let query = Query::parse(Some("b=2&a=x+y&a=%7a&&bad=%zz&odd=%2&c;d=1&=e&f&g=h=i"));
        assert_eq!(query.all("a"), ["x y", "z"]);
        assert_eq!(query.text("b"), Some("2"));
        for absent in ["bad", "odd", "c", "d", "c;d", "nope"] {
            assert!(query.all(absent).is_empty(), "{absent}");
        }
        assert_eq!(query.all(""), ["e"]);
        assert_eq!(query.all("f"), [""]);
        assert_eq!(query.text("f"), None);
        assert_eq!(query.text("g"), Some("h=i"));
        assert_eq!(Query::parse(None), Query::default());
    }

    #[test]
    fn flag_is_false_only_for_zero_and_false_in_any_case() {
        let read = |text: &str| Query::parse(Some(text)).optional_flag("watch");
        for (text, expected) in [
            ("watch=1", Some(true)),
            ("watch=TRUE", Some(true)),
            ("watch=t", Some(true)),
            ("watch=no", Some(true)),
            ("watch", Some(true)),
            ("watch=", Some(true)),
            ("watch=+false", Some(true)),
            ("watch=0", Some(false)),
            ("watch=00", Some(true)),
            ("watch=false", Some(false)),
            ("watch=FALSE", Some(false)),
            ("watch=%46alse", Some(false)),
            ("w%61tch=False", Some(false)),
            ("watch=false&watch=true", Some(false)),
            ("watch=true&watch=false", Some(true)),
            ("watch=%zz&watch=false", Some(false)),
            ("Watch=true", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn number_is_absent_or_a_number() {
        let read = |text: &str| {
            Query::parse(Some(text))
                .number("limit")
                .map_err(|e| e.to_string())
        };
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("limit=-3"), Ok(Some(-3)));
        assert_eq!(
            read("limit="),
            Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned())
        );
        assert_eq!(
            read("limit=99999999999999999999"),
            Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned())
        );
    }
}
