//! Compression of responses.
//!
//! As in the real server: only large ones (128 KiB), only for clients that accept `gzip`, never a watch, and at the fastest
//! level, because clients are often close by.

use std::{
    io::Write,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};

use crate::body::Body;

/// Smaller responses are not compressed.
const MIN_BYTES: usize = 128 * 1024;

/// How much is compressed before other tasks run. What compresses well is little output, so a client's window does not
/// limit it.
const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// Whether a client accepts compressed responses.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

/// Compresses a response if it is large.
pub(crate) fn compress(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let body = match body.compressed_above(MIN_BYTES) {
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

/// Compresses a body piece by piece.
pub(crate) struct Compressor {
    /// `None` at the end.
    encoder: Option<Box<GzEncoder<Vec<u8>>>>,
    /// How much was compressed since other tasks could run.
    read: usize,
}

impl Compressor {
    pub(crate) fn new() -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self {
            encoder: Some(Box::new(encoder)),
            read: 0,
        }
    }

    /// The next compressed piece of the pieces that `plain` returns; `None` after the last.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        mut plain: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>,
    ) -> Poll<Option<Bytes>> {
        while let Some(encoder) = &mut self.encoder {
            if self.read > MAX_INPUT_BYTES {
                self.read = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(piece) = ready!(plain(context)) else {
                let rest = self.encoder.take().and_then(|encoder| encoder.finish().ok());
                return Poll::Ready(rest.map(Bytes::from));
            };
            self.read += piece.len();
            // Writing to a vector does not fail.
            let _ = encoder.write_all(&piece);
            let packed = std::mem::take(encoder.get_mut());
            if !packed.is_empty() {
                return Poll::Ready(Some(packed.into()));
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn compressed_pieces_decompress_to_the_input() {
        let plain: Vec<Bytes> = (0..50_u8).map(|n| vec![n; 100_000].into()).collect();
        let mut rest = plain.iter().cloned();
        let mut encoder = Compressor::new();
        let (mut packed, mut pauses) = (Vec::new(), 0);
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            match encoder.poll_next(&mut context, |_| Poll::Ready(rest.next())) {
                Poll::Ready(Some(piece)) => packed.extend_from_slice(&piece),
                Poll::Ready(None) => break,
                Poll::Pending => pauses += 1,
            }
        }
        assert!((3..=5).contains(&pauses), "{pauses} pauses in 5 MB");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut unpacked)
            .expect("gzip");
        assert_eq!(unpacked, plain.concat());
        assert!(packed.len() < unpacked.len() / 10, "{}", packed.len());
    }

    #[test]
    fn gzip_is_accepted_by_name_only() {
        for (encodings, accepted) in [
            ("gzip", true),
            ("br, gzip", true),
            ("gzip;q=1", false),
            ("identity", false),
        ] {
            let mut headers = HeaderMap::new();
            assert!(!is_accepted(&headers));
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encodings));
            assert_eq!(is_accepted(&headers), accepted, "{encodings}");
        }
    }
}
