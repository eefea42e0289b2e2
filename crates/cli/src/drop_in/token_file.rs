//! The file of `--token-auth-file`: CSV records of token, user, UID and, optionally, groups.

use anyhow::{Context, bail};
use windlass_apiserver::User;

/// Bearer tokens and their users, and remarks about records without effect.
#[derive(Debug, Default)]
pub(super) struct TokenFile {
    /// In order; the last of equal tokens counts.
    pub(super) tokens: Vec<(String, User)>,
    pub(super) warnings: Vec<String>,
}

impl TokenFile {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut file = Self::default();
        for (number, record) in (1..).zip(csv_records(text)?) {
            let [token, name, uid, more @ ..] = &record[..] else {
                let found = record.len();
                bail!("must have at least 3 columns (token, user name, user uid), found {found}");
            };
            if token.is_empty() {
                file.warnings.push(format!("record {number} has no token"));
                continue;
            }
            if file.tokens.iter().any(|(known, _)| known == token) {
                let remark = format!("record {number} replaces an earlier record with the same token");
                file.warnings.push(remark);
            }
            // Groups are one field, and further fields have no effect.
            let groups = more.first().map(|groups| groups.split(','));
            let mut user = User::new(name, groups.into_iter().flatten());
            user.uid.clone_from(uid);
            file.tokens.push((token.clone(), user));
        }
        Ok(file)
    }
}

/// Splits CSV into records, like Go's `encoding/csv`: a field in double quotes may contain commas, line breaks and doubled
/// quotes, spaces belong to fields, and empty lines are skipped.
fn csv_records(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let mut records = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = strip_line_break(rest) {
            rest = after;
            continue;
        }
        let line = || text[..text.len() - rest.len()].matches('\n').count() + 1;
        let (record, after) = csv_record(rest).with_context(|| format!("line {}", line()))?;
        records.push(record);
        rest = after;
    }
    Ok(records)
}

/// Reads one record. Returns it with the text after it.
fn csv_record(mut rest: &str) -> anyhow::Result<(Vec<String>, &str)> {
    let mut fields = Vec::new();
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find([',', '\n']).unwrap_or(rest.len());
                let field = &rest[..end];
                // A carriage return at the end of a line belongs to the line break.
                let is_last = !rest[end..].starts_with(',');
                let field = field.strip_suffix('\r').filter(|_| is_last).unwrap_or(field);
                if field.contains('"') {
                    bail!("bare \" in non-quoted field");
                }
                (field.to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        let after = after
            .strip_prefix('\r')
            .filter(|rest| rest.is_empty())
            .unwrap_or(after);
        if after.is_empty() {
            return Ok((fields, after));
        }
        if let Some(next) = strip_line_break(after) {
            return Ok((fields, next));
        }
        rest = after
            .strip_prefix(',')
            .context("extraneous or missing \" in quoted-field")?;
    }
}

/// Reads a field after its opening quote.
fn quoted_field(mut rest: &str) -> anyhow::Result<(String, &str)> {
    let mut field = String::new();
    loop {
        let (part, after) = rest
            .split_once('"')
            .context("extraneous or missing \" in quoted-field")?;
        field.push_str(&part.replace("\r\n", "\n"));
        match after.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None => return Ok((field, after)),
        }
    }
}

fn strip_line_break(text: &str) -> Option<&str> {
    text.strip_prefix('\n').or_else(|| text.strip_prefix("\r\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_split_like_go_does() {
        for (text, records) in [
            ("", &[][..]),
            ("\n\r\n", &[][..]),
            ("a,b,c", &[&["a", "b", "c"][..]][..]),
            ("a,b,c\nd,e,f\n", &[&["a", "b", "c"], &["d", "e", "f"]]),
            ("a,b,c\r\n\r\nd,e,f", &[&["a", "b", "c"], &["d", "e", "f"]]),
            ("t,u,1,\"g,h\"\n", &[&["t", "u", "1", "g,h"]]),
            ("\"a\"\"b\",\"c\nd\",\n", &[&["a\"b", "c\nd", ""]]),
            (" a , b,", &[&[" a ", " b", ""]]),
        ] {
            assert_eq!(csv_records(text).unwrap(), records, "{text:?}");
        }
        for (text, why) in [
            ("a\"b,c", "line 1: bare \" in non-quoted field"),
            ("a,b\n\"c", "line 2: extraneous or missing \" in quoted-field"),
            ("\"a\"b", "line 1: extraneous or missing \" in quoted-field"),
        ] {
            assert_eq!(format!("{:#}", csv_records(text).unwrap_err()), why, "{text:?}");
        }
    }

    #[test]
    fn user_has_name_uid_and_groups() {
        let file = TokenFile::parse("t,\"last, first\",7,\"a,b\",more\nu,v,\n,x,\nt,w,8\n").unwrap();
        let users: Vec<_> = file
            .tokens
            .iter()
            .map(|(token, user)| (&**token, &*user.name, &*user.uid, &user.groups[..]))
            .collect();
        let groups = ["a", "b", "system:authenticated"].map(str::to_owned);
        assert_eq!(
            users,
            [
                ("t", "last, first", "7", &groups[..]),
                ("u", "v", "", &groups[2..]),
                ("t", "w", "8", &groups[2..])
            ]
        );
        assert_eq!(
            file.warnings,
            [
                "record 3 has no token",
                "record 4 replaces an earlier record with the same token"
            ]
        );
        let short = TokenFile::parse("t,u\n").unwrap_err();
        assert_eq!(
            short.to_string(),
            "must have at least 3 columns (token, user name, user uid), found 2"
        );
    }

    proptest! {
        #[test]
        fn quoted_fields_are_read_back(fields in prop::collection::vec("[^\\r]{0,8}", 1..5)) {
            let quoted: Vec<_> = fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
            let records = csv_records(&format!("{}\n", quoted.join(","))).unwrap();
            prop_assert_eq!(records, vec![fields]);
        }

        #[test]
        fn any_text_is_read_without_panic(text in "\\PC*") {
            let _ = csv_records(&text);
        }
    }
}
