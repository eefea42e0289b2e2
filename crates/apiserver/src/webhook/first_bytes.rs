//! A stream that remembers the first bytes that it read, to tell what a server speaks that does not speak TLS.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes are remembered.
const LENGTH: usize = 5;

pub(super) struct FirstBytes<S> {
    stream: S,
    first: [u8; LENGTH],
    known: usize,
}

impl<S> FirstBytes<S> {
    pub(super) fn of(stream: S) -> Self {
        Self {
            stream,
            first: [0; LENGTH],
            known: 0,
        }
    }

    /// The first bytes; fewer if there were fewer.
    pub(super) fn first(&self) -> &[u8] {
        &self.first[..self.known]
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let (known, read) = (self.known, &buffer.filled()[before..]);
        let length = read.len().min(LENGTH - known);
        self.first[known..known + length].copy_from_slice(&read[..length]);
        self.known += length;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
