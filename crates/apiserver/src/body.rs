//! Response bodies: bytes, a list in pieces, or a stream.

use std::{
    collections::VecDeque,
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::{gzip::Compressor, listing::ListBody, verbs::WatchStream};

/// The body of a response.
pub struct Body {
    inner: Inner,
    /// The permit of the in-flight request, held until the body is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

enum Inner {
    Whole(Bytes),
    List(Box<Pieces>),
    Compressed(Compressor, Box<Pieces>),
    Stream(BoxStream<'static, Bytes>),
}

/// Ready pieces, and then the rest of a list.
struct Pieces {
    ready: VecDeque<Bytes>,
    list: Option<ListBody>,
}

impl Pieces {
    fn next(&mut self) -> Option<Bytes> {
        let ready = self.ready.pop_front();
        ready.or_else(|| self.list.as_mut()?.next_piece())
    }
}

impl Inner {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(match self {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(pieces) => pieces.next(),
            Self::Compressed(packer, pieces) => packer.next_piece(|| pieces.next()),
            Self::Stream(frames) => return frames.as_mut().poll_next(context),
        })
    }
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Self {
        Self { inner, permit: None }
    }
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Inner::Whole(bytes.into()).into()
    }

    /// Holds a permit until the body is dropped.
    pub(crate) fn hold_permit(&mut self, permit: Option<OwnedSemaphorePermit>) {
        self.permit = permit;
    }

    pub(crate) fn list(mut list: ListBody) -> Self {
        // A list of one piece has a known length, which saves small answers the chunked encoding.
        match (list.next_piece(), list.is_done()) {
            (Some(piece), true) => Self::whole(piece),
            (Some(piece), false) => Inner::List(Box::new(Pieces {
                ready: [piece].into(),
                list: Some(list),
            }))
            .into(),
            (None, _) => Self::whole(Bytes::new()),
        }
    }

    pub(crate) fn watch(stream: WatchStream) -> Self {
        let frames = futures::stream::unfold(stream, |mut stream| async move {
            let piece = stream.next_piece().await?;
            Some((piece, stream))
        });
        Self::stream(frames.boxed())
    }

    /// A stream of pieces, none of them empty.
    pub(crate) fn stream(pieces: BoxStream<'static, Bytes>) -> Self {
        Inner::Stream(pieces).into()
    }

    /// Compresses the body if it has more than `least` bytes; else returns it unchanged as an error.
    pub(crate) fn compressed_above(self, least: usize) -> Result<Self, Self> {
        let Self { inner, permit } = self;
        let with_permit = |inner: Inner| Self { inner, permit };
        let mut pieces = match inner {
            Inner::Whole(bytes) => Box::new(Pieces {
                ready: [bytes].into(),
                list: None,
            }),
            Inner::List(pieces) => pieces,
            other => return Err(with_permit(other)),
        };
        while pieces.ready.iter().map(Bytes::len).sum::<usize>() <= least {
            match pieces.list.as_mut().and_then(ListBody::next_piece) {
                Some(piece) => pieces.ready.push_back(piece),
                None => return Err(with_permit(Inner::Whole(Vec::from(pieces.ready).concat().into()))),
            }
        }
        Ok(with_permit(Inner::Compressed(Compressor::new(), pieces)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // In the process, the client's task polls the body, and a bug here must not panic it. The body ends early, like
        // a lost connection.
        let next = std::panic::catch_unwind(AssertUnwindSafe(|| self.inner.poll_next(context)));
        let next = next.unwrap_or_else(|_| {
            tracing::error!("response body panicked and is truncated");
            self.inner = Inner::Whole(Bytes::new());
            Poll::Ready(None)
        });
        next.map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.inner, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn panic_ends_the_body_without_panicking_its_reader() {
        let pieces = futures::stream::iter([0, 1, 2]).map(|number| {
            assert_ne!(number, 1, "a defect");
            Bytes::from_static(b"piece")
        });
        let mut body = Body::stream(pieces.boxed());
        let first = body.frame().await.and_then(Result::ok);
        assert_eq!(
            first.and_then(|frame| frame.into_data().ok()),
            Some(Bytes::from_static(b"piece"))
        );
        for _ in 0..2 {
            assert!(body.frame().await.is_none());
        }
    }
}
