//! Minimal parsing of HTTP/1.1 responses for a load generator: the status, and where the response ends.

use anyhow::{Context, bail, ensure};

/// A complete response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedResponse {
    pub(super) status: u16,
    /// Length of the head.
    pub(super) head: usize,
}

/// Parses what has arrived so far; `None` if the response is incomplete. Nothing may follow it, because there is only
/// one request at a time.
pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Option<ParsedResponse>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head]).context("the head of the response is not UTF-8")?;
    let head = head + 4;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.with_context(|| format!("invalid status line {first:?}"))?;
    let body = &bytes[head..];
    let end = match framing(lines)? {
        Framing::Length(length) => Some(length),
        Framing::Chunks => end_of_chunks(body)?,
    };
    let Some(end) = end.filter(|end| *end <= body.len()) else {
        return Ok(None);
    };
    ensure!(end == body.len(), "{} bytes after the response", body.len() - end);
    Ok(Some(ParsedResponse { status, head }))
}

enum Framing {
    Length(usize),
    Chunks,
}

fn framing<'a>(headers: impl Iterator<Item = &'a str>) -> anyhow::Result<Framing> {
    for (name, value) in headers.filter_map(|header| header.split_once(": ")) {
        if name.eq_ignore_ascii_case("content-length") {
            return Ok(Framing::Length(value.parse().context("invalid content length")?));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            return Ok(Framing::Chunks);
        }
    }
    bail!("response with neither content length nor chunked encoding")
}

/// Returns the end of the last chunk; `None` if it has not arrived yet.
fn end_of_chunks(body: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut place = 0;
    loop {
        let rest = body.get(place..).unwrap_or_default();
        let Some(digits) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&rest[..digits])?;
        let size = usize::from_str_radix(size, 16).with_context(|| format!("invalid chunk size {size:?}"))?;
        place += digits + 2 + size + 2;
        if size == 0 {
            return Ok(Some(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n";
    const SIZED: &[u8] =
        b"HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n{\r\n}";

    #[test]
    fn response_is_complete_with_its_last_byte() {
        for (bytes, status) in [(CHUNKED, 201), (SIZED, 409)] {
            for part in 0..bytes.len() {
                assert_eq!(parse(&bytes[..part]).expect("so far"), None, "{part}");
            }
            let response = parse(bytes).expect("a response").expect("all of it");
            assert_eq!(response.status, status);
            parse(&[bytes, b"x"].concat()).expect_err("one byte too many");
        }
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for bytes in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "ICY 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        ] {
            parse(bytes.as_bytes()).expect_err(bytes);
        }
    }
}
