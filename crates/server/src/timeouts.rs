//! How long a client may take: for a request's head, for its body, for reading the answer. A client that takes longer is
//! disconnected, so that an idle one keeps no connection.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use futures_util::stream::{StreamExt, try_unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, timeout_at};

use super::limits;

#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A request's head, and an idle connection.
    pub head: Duration,
    /// A whole body.
    pub body: Duration,
    /// Any pause within a body, and any while an answer waits to be read.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { head: limits::HEAD, body: limits::WHOLE_BODY, silence: limits::SILENCE }
    }
}

/// The error of a body that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body came too slowly")]
pub struct TooSlow;

impl TooSlow {
    /// Whether it is this error, or a cause of it.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        std::iter::successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<Self>)
    }
}

impl Timeouts {
    /// The same body, which fails with [`TooSlow`] once it has taken too long.
    pub fn limit(self, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let end = Instant::now() + self.body;
        Body::from_stream(try_unfold(body.into_data_stream(), move |mut data| async move {
            let next = timeout_at(end.min(Instant::now() + self.silence), data.next()).await;
            let piece = next.map_err(|_| axum::Error::new(TooSlow))?.transpose()?;
            Ok::<_, axum::Error>(piece.map(|piece| (piece, data)))
        }))
    }
}

/// A stream on which a write fails once the other end has not read for too long.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, waiting: None }
    }

    /// The result of a write, or an error if the stream has been pending for too long.
    fn within<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let timeout = self.timeout;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.within(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{self, Stream};
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_hours(1);

    fn pieces() -> impl Stream<Item = Result<&'static str, io::Error>> {
        stream::iter([Ok("a"), Ok("b")])
    }

    #[tokio::test]
    async fn a_body_that_pauses_or_never_ends_fails() {
        let silent = || Body::from_stream(pieces().chain(stream::pending()));
        let endless = || {
            Body::from_stream(stream::unfold((), |()| async {
                sleep(SHORT / 10).await;
                Some((Ok::<_, io::Error>("x"), ()))
            }))
        };
        for (body, timeouts) in [
            (silent(), Timeouts { head: LONG, body: LONG, silence: SHORT }),
            (endless(), Timeouts { head: LONG, body: SHORT, silence: LONG }),
        ] {
            let error = timeouts.limit(body).collect().await.unwrap_err();
            assert!(TooSlow::caused(&error), "{error:?}");
        }
        let timeouts = Timeouts { head: LONG, body: LONG, silence: LONG };
        let whole = timeouts.limit(Body::from_stream(pieces())).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "ab");
        let broken = stream::once(async { Err::<&str, _>(io::Error::other("cut")) });
        let error = timeouts.limit(Body::from_stream(broken)).collect().await.unwrap_err();
        assert!(!TooSlow::caused(&error));
    }

    #[tokio::test]
    async fn a_write_fails_if_nobody_reads_and_succeeds_if_it_is_read_slowly() {
        let (near, far) = duplex(16);
        let error = WriteTimeout::new(near, SHORT).write_all(&[7; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(far);
        let (near, mut far) = duplex(1);
        let mut near = WriteTimeout::new(near, LONG);
        let (written, read) = tokio::join!(near.write_all(&[7; 64]), async {
            let mut got = [0; 64];
            far.read_exact(&mut got).await.map(|_| got)
        });
        written.unwrap();
        assert_eq!(read.unwrap(), [7; 64]);
    }
}
