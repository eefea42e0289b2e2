//! What answers are made of: bytes at once, a list piece by piece, or a watch without end.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http_body::{Frame, SizeHint};

use crate::verbs::{ListBody, WatchStream};

/// The body of an answer.
pub struct Body(Inner);

enum Inner {
    Whole(Bytes),
    List(ListBody),
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Whole(bytes.into()))
    }

    pub(crate) fn list(mut list: ListBody) -> Self {
        // A list of one piece has a known length, which saves small answers the chunked encoding.
        match (list.next_piece(), list.is_done()) {
            (Some(piece), true) => Self::whole(piece),
            (Some(piece), false) => Self(Inner::List(list.starting_with(piece))),
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

    /// Pieces of which none is empty, until there are no more.
    pub(crate) fn stream(pieces: BoxStream<'static, Bytes>) -> Self {
        Self(Inner::Stream(pieces))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.0 {
            Inner::Whole(bytes) if bytes.is_empty() => None,
            Inner::Whole(bytes) => Some(std::mem::take(bytes)),
            Inner::List(list) => list.next_piece(),
            Inner::Stream(frames) => match frames.as_mut().poll_next(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
