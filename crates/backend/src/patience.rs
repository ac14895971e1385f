//! How long a client may take: for a request's head, for its body, for reading the answer. Whoever takes longer is cut
//! off, so that nobody keeps a connection by doing nothing with it.

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
pub struct Patience {
    /// A request's head, and an idle connection.
    pub head: Duration,
    /// A whole body.
    pub body: Duration,
    /// Any pause within a body, and any while an answer waits to be read.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: limits::HEAD, body: limits::WHOLE_BODY, silence: limits::SILENCE }
    }
}

/// What reading a body ends with if it took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body came too slowly")]
pub struct TooSlow;

impl TooSlow {
    /// Whether it is behind an error that somebody else made of it.
    pub fn is_behind(error: &(dyn Error + 'static)) -> bool {
        std::iter::successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<Self>)
    }
}

impl Patience {
    /// The same body, which fails with [`TooSlow`] once it has taken too long.
    pub fn over(self, body: Body) -> Body {
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

/// A connection whose other end must go on reading what is written to it.
#[derive(Debug)]
pub struct Unread<S> {
    stream: S,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Unread<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// What the stream says to a write, or an error if it has been saying "not yet" for too long.
    fn within<T>(&mut self, cx: &mut Context<'_>, said: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if said.is_ready() {
            self.waiting = None;
            return said;
        }
        let patience = self.patience;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, said)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.within(cx, said)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let said = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, said)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let said = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, said)
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
    async fn a_body_that_pauses_or_never_ends_fails_and_a_whole_one_does_not() {
        let silent = || Body::from_stream(pieces().chain(stream::pending()));
        let endless = || {
            Body::from_stream(stream::unfold((), |()| async {
                sleep(SHORT / 10).await;
                Some((Ok::<_, io::Error>("x"), ()))
            }))
        };
        for (body, patience) in [
            (silent(), Patience { head: LONG, body: LONG, silence: SHORT }),
            (endless(), Patience { head: LONG, body: SHORT, silence: LONG }),
        ] {
            let error = patience.over(body).collect().await.unwrap_err();
            assert!(TooSlow::is_behind(&error), "{error:?}");
        }
        let patience = Patience { head: LONG, body: LONG, silence: LONG };
        let whole = patience.over(Body::from_stream(pieces())).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "ab");
        let broken = stream::once(async { Err::<&str, _>(io::Error::other("cut")) });
        let error = patience.over(Body::from_stream(broken)).collect().await.unwrap_err();
        assert!(!TooSlow::is_behind(&error));
    }

    #[tokio::test]
    async fn what_nobody_reads_fails_and_what_is_read_slowly_arrives() {
        let (near, far) = duplex(16);
        let error = Unread::new(near, SHORT).write_all(&[7; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(far);
        let (near, mut far) = duplex(1);
        let mut near = Unread::new(near, LONG);
        let (written, read) = tokio::join!(near.write_all(&[7; 64]), async {
            let mut got = [0; 64];
            far.read_exact(&mut got).await.map(|_| got)
        });
        written.unwrap();
        assert_eq!(read.unwrap(), [7; 64]);
    }
}
