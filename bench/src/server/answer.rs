//! An answer of HTTP/1.1 as a load generator reads it: how it went, and where it ends.

use anyhow::{Context, bail, ensure};

/// What is known of an answer that has arrived whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Where its head ends.
    pub(super) head: usize,
}

/// Looks at what has arrived so far: `None` if more must come. Nothing may stand behind the answer, because nothing else
/// was asked for.
pub(super) fn read(bytes: &[u8]) -> anyhow::Result<Option<Answer>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head]).context("the head of an answer is text")?;
    let head = head + 4;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.with_context(|| format!("{first:?} does not say how it went"))?;
    let body = &bytes[head..];
    let end = match framing(lines)? {
        Framing::Length(length) => Some(length),
        Framing::Chunks => end_of_chunks(body)?,
    };
    let Some(end) = end.filter(|end| *end <= body.len()) else {
        return Ok(None);
    };
    ensure!(end == body.len(), "{} bytes behind an answer", body.len() - end);
    Ok(Some(Answer { status, head }))
}

enum Framing {
    Length(usize),
    Chunks,
}

fn framing<'a>(headers: impl Iterator<Item = &'a str>) -> anyhow::Result<Framing> {
    for (name, value) in headers.filter_map(|header| header.split_once(": ")) {
        if name.eq_ignore_ascii_case("content-length") {
            return Ok(Framing::Length(value.parse().context("a length")?));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            return Ok(Framing::Chunks);
        }
    }
    bail!("an answer that does not say where it ends")
}

/// Where the last of the chunks ends; `None` if it is not there yet.
fn end_of_chunks(body: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut place = 0;
    loop {
        let rest = body.get(place..).unwrap_or_default();
        let Some(digits) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&rest[..digits])?;
        let size = usize::from_str_radix(size, 16).with_context(|| format!("a chunk of {size:?} bytes"))?;
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
    fn an_answer_is_whole_with_its_last_byte_and_not_before() {
        for (bytes, status) in [(CHUNKED, 201), (SIZED, 409)] {
            for part in 0..bytes.len() {
                assert_eq!(read(&bytes[..part]).expect("so far"), None, "{part}");
            }
            let answer = read(bytes).expect("an answer").expect("all of it");
            assert_eq!(answer.status, status);
            read(&[bytes, b"x"].concat()).expect_err("one byte more than was asked for");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "ICY 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        ] {
            read(bytes.as_bytes()).expect_err(bytes);
        }
    }
}
