//! Response bodies: bytes, a list in pieces, or a stream.
//!
//! A body is handed out in slices, because hyper buffers a whole frame, however much of it the client reads. So most of
//! an answer stays in its body until the client has read what came before, and with it the permit of its request.

use std::{
    collections::VecDeque,
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use http_body::{Frame, SizeHint};

use crate::{
    gzip::Compressor, large_work::LargeWork, listing::ListBody, permits::Permit, verbs::WatchStream,
};

/// The size of the largest frame, in bytes. Most answers are one frame.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// How many further pieces of a list are written to find out whether it is long enough to compress: two, unless they
/// show little of large objects.
const MAX_PIECES_TO_START: usize = 2;

/// The body of a response.
pub struct Body {
    inner: Inner,
    /// The rest of a piece that is larger than a frame.
    unsent: Bytes,
    /// The permit of the request or watch, held until the body is dropped.
    permit: Option<Permit>,
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
    rest: Option<ListRest>,
}

/// The part of a list that is not written yet.
enum ListRest {
    Idle(Box<ListBody>, LargeWork),
    /// A large piece is written, or waits for a thread.
    Writing(BoxFuture<'static, (Self, Option<Bytes>)>),
}

impl Pieces {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(ready) = self.ready.pop_front() {
            return Poll::Ready(Some(ready));
        }
        let mut writing = match self.rest.take() {
            None => return Poll::Ready(None),
            Some(ListRest::Idle(mut list, large_work)) => {
                if !large_work.is_large(list.next_cost(large_work.most())) {
                    let piece = list.next_piece();
                    self.rest = Some(ListRest::Idle(list, large_work));
                    return Poll::Ready(piece);
                }
                async move {
                    let piece = large_work.run_part(|| list.next_piece()).await;
                    (ListRest::Idle(list, large_work), piece)
                }
                .boxed()
            }
            Some(ListRest::Writing(writing)) => writing,
        };
        match writing.poll_unpin(context) {
            Poll::Ready((rest, piece)) => {
                self.rest = Some(rest);
                Poll::Ready(piece)
            }
            Poll::Pending => {
                self.rest = Some(ListRest::Writing(writing));
                Poll::Pending
            }
        }
    }
}

impl Inner {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(match self {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(pieces) => return pieces.poll_next(context),
            Self::Compressed(packer, pieces) => {
                return packer.poll_next(context, |context| pieces.poll_next(context));
            }
            Self::Stream(frames) => return frames.as_mut().poll_next(context),
        })
    }
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Self {
        Self {
            inner,
            unsent: Bytes::new(),
            permit: None,
        }
    }
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Inner::Whole(bytes.into()).into()
    }

    /// Holds a permit until the body is dropped.
    pub(crate) fn hold_permit(&mut self, permit: Option<Permit>) {
        self.permit = permit;
    }

    /// The size of a body that is in memory and holds no permit.
    pub(crate) fn uncounted_bytes(&self) -> usize {
        match &self.inner {
            Inner::Whole(bytes) if self.permit.is_none() => bytes.len(),
            _ => 0,
        }
    }

    /// Hands over the permit, to be held until the last frame is sent.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    pub(crate) fn list(mut list: ListBody, large_work: LargeWork) -> Self {
        // A list of one piece has a known length, which saves small answers the chunked encoding.
        match (list.next_piece(), list.is_done()) {
            (Some(piece), true) => Self::whole(piece),
            (Some(piece), false) => Inner::List(Box::new(Pieces {
                ready: [piece].into(),
                rest: Some(ListRest::Idle(Box::new(list), large_work)),
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

    /// The work of [`compressed_above`](Self::compressed_above), in bytes of objects. Counts no further than `enough`.
    pub(crate) fn cost_to_start(&self, enough: usize) -> usize {
        match &self.inner {
            Inner::List(pieces) => match &pieces.rest {
                Some(ListRest::Idle(list, _)) => list.next_cost(enough),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Compresses the body if it has more than `least` bytes; else returns it unchanged as an error. A list that shows
    /// little of large objects is not compressed, however long it is: its length would take long to find out.
    pub(crate) fn compressed_above(self, least: usize) -> Result<Self, Self> {
        let Self {
            inner,
            unsent,
            permit,
        } = self;
        let with_permit = |inner: Inner| Self {
            inner,
            unsent,
            permit,
        };
        let mut pieces = match inner {
            Inner::Whole(bytes) => Box::new(Pieces {
                ready: [bytes].into(),
                rest: None,
            }),
            Inner::List(pieces) => pieces,
            other => return Err(with_permit(other)),
        };
        let mut tries = 0;
        while pieces.ready.iter().map(Bytes::len).sum::<usize>() <= least {
            if tries == MAX_PIECES_TO_START {
                return Err(with_permit(Inner::List(pieces)));
            }
            tries += 1;
            let next = match &mut pieces.rest {
                Some(ListRest::Idle(list, _)) => list.next_piece(),
                _ => None,
            };
            match next {
                Some(piece) => pieces.ready.push_back(piece),
                None => return Err(with_permit(Inner::Whole(Vec::from(pieces.ready).concat().into()))),
            }
        }
        Ok(with_permit(Inner::Compressed(Compressor::new(), pieces)))
    }

    fn next_slice(&mut self) -> Bytes {
        let length = self.unsent.len().min(MAX_FRAME_BYTES);
        self.unsent.split_to(length)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.unsent.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.next_slice()))));
        }
        // In the process, the client's task polls the body, and a bug here must not panic it. The body ends early, like
        // a lost connection.
        let next = std::panic::catch_unwind(AssertUnwindSafe(|| self.inner.poll_next(context)));
        let next = next.unwrap_or_else(|_| {
            tracing::error!("response body panicked and is truncated");
            self.inner = Inner::Whole(Bytes::new());
            Poll::Ready(None)
        });
        next.map(|next| {
            self.unsent = next?;
            Some(Ok(Frame::data(self.next_slice())))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty() && matches!(&self.inner, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact((self.unsent.len() + bytes.len()) as u64),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn frames_are_bounded_and_a_small_body_is_one_frame() {
        let text = |size: usize| Bytes::from(vec![b'x'; size]);
        for (size, frames) in [
            (1, 1),
            (MAX_FRAME_BYTES, 1),
            (MAX_FRAME_BYTES + 1, 2),
            (MAX_FRAME_BYTES * 3, 3),
        ] {
            let stream = futures::stream::iter([text(size)]).boxed();
            for (mut body, has_length) in [(Body::whole(text(size)), true), (Body::stream(stream), false)] {
                let mut left = size;
                for number in 1..=frames {
                    assert!(!http_body::Body::is_end_stream(&body));
                    let length = http_body::Body::size_hint(&body).exact();
                    assert_eq!(length, has_length.then_some(left as u64));
                    let frame = body.frame().await.and_then(Result::ok).expect("a frame");
                    let sent = frame.data_ref().map_or(0, Bytes::len);
                    assert_eq!(sent, left.min(MAX_FRAME_BYTES), "frame {number} of {size} bytes");
                    left -= sent;
                }
                assert_eq!((left, http_body::Body::is_end_stream(&body)), (0, has_length));
                assert!(body.frame().await.is_none());
            }
        }
    }

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
