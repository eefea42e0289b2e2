//! Answers in fewer bytes, for those who take them.
//!
//! As on the real server: only what is large (128 KiB), only for clients that say `gzip`, never a watch, and with the least
//! effort that helps, because the client is often next door.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};

use crate::body::Body;

/// What is smaller is not worth the work.
const LEAST: usize = 128 * 1024;

/// Whether a client takes compressed answers.
pub(crate) fn is_taken(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

/// An answer, compressed if it is large.
pub(crate) fn packed(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let body = match body.packed_beyond(LEAST) {
        Ok(packed) => {
            let gzip = HeaderValue::from_static("gzip");
            parts.headers.insert(header::CONTENT_ENCODING, gzip);
            let vary = HeaderValue::from_static("Accept-Encoding");
            if !parts
                .headers
                .get_all(header::VARY)
                .iter()
                .any(|other| *other == vary)
            {
                parts.headers.append(header::VARY, vary);
            }
            packed
        }
        Err(body) => body,
    };
    Response::from_parts(parts, body)
}

/// Compresses pieces as they come.
pub(crate) struct Packer(Option<Box<GzEncoder<Vec<u8>>>>);

impl Packer {
    pub(crate) fn new() -> Self {
        Self(Some(Box::new(GzEncoder::new(Vec::new(), Compression::fast()))))
    }

    /// The next compressed piece, given where the plain ones come from; `None` after the last.
    pub(crate) fn next_piece(&mut self, mut plain: impl FnMut() -> Option<Bytes>) -> Option<Bytes> {
        while let Some(encoder) = &mut self.0 {
            let Some(piece) = plain() else {
                let rest = self.0.take()?.finish().unwrap_or_default();
                return Some(rest.into());
            };
            // A vector takes everything.
            let _ = encoder.write_all(&piece);
            let packed = std::mem::take(encoder.get_mut());
            if !packed.is_empty() {
                return Some(packed.into());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn pieces_come_out_as_they_went_in() {
        let plain: Vec<Bytes> = (0..50_u8).map(|n| vec![n; 10_000].into()).collect();
        let mut rest = plain.iter().cloned();
        let mut encoder = Packer::new();
        let mut packed = Vec::new();
        while let Some(piece) = encoder.next_piece(|| rest.next()) {
            packed.extend_from_slice(&piece);
        }
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut unpacked)
            .expect("gzip");
        assert_eq!(unpacked, plain.concat());
        assert!(packed.len() < unpacked.len() / 10, "{}", packed.len());
    }

    #[test]
    fn a_client_says_that_it_takes_gzip() {
        for (said, taken) in [
            ("gzip", true),
            ("br, gzip", true),
            ("gzip;q=1", false),
            ("identity", false),
        ] {
            let mut headers = HeaderMap::new();
            assert!(!is_taken(&headers));
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(said));
            assert_eq!(is_taken(&headers), taken, "{said}");
        }
    }
}
