//! Holding a paused clock while something outside of the runtime is awaited.

use std::{future::Future, sync::mpsc, time::Duration};

use crate::paused_instant;

/// How long, in real time, one call of [`outside`] holds the clock.
const MAX_HOLD: Duration = Duration::from_secs(30);

/// Awaits work outside of the runtime, such as a request to an HTTP server or another process, and holds a paused clock
/// meanwhile.
///
/// A paused clock advances to the next timer whenever all tasks wait. It does not know about a socket whose answer is on
/// its way: the timeout of the request fires at once, and hours may pass before the answer is read. Inside of `outside` no
/// time passes:
///
/// ```
/// use std::time::Duration;
/// use tokio::time::{Instant, timeout};
/// use windlass_clock::outside;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// # async fn request() { tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5))).await.unwrap() }
/// let start = Instant::now();
/// let answer = timeout(Duration::from_secs(1), outside(request())).await;
/// assert!(answer.is_ok() && start.elapsed().is_zero());
/// # }
/// ```
///
/// Use it in a test, around whatever makes the request: the request itself, or the wait for the result of a controller
/// that makes it. It may also stay in the controller: on a real clock it only awaits the future.
///
/// The whole runtime stands still, so the future must not wait for a timer. After 30 seconds of real time the clock is
/// released, and the timeout of a request without an answer fires as usual. Cancellation-safe if the future is.
pub async fn outside<F: Future>(work: F) -> F::Output {
    hold(work, MAX_HOLD).await
}

/// Tokio does not advance a paused clock while a blocking task runs, so one waits until the work has ended or is dropped.
async fn hold<F: Future>(work: F, limit: Duration) -> F::Output {
    let (_ended, end) = mpsc::channel::<()>();
    if paused_instant().is_some() {
        // Ends with `_ended`.
        drop(tokio::task::spawn_blocking(move || end.recv_timeout(limit)));
    }
    work.await
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        io::{Read, Write},
        net::{SocketAddr, TcpListener},
        pin::Pin,
        task::Poll,
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::{Instant, sleep, timeout},
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An HTTP server on a thread, which takes real time to answer; `None`: it never does.
    fn slow_server(delay: Option<Duration>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client connects");
            let mut request = [0; 1024];
            let _ = connection.read(&mut request);
            match delay {
                Some(delay) => {
                    std::thread::sleep(delay);
                    let _ = connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                }
                // Until the client is gone.
                None => drop(connection.read(&mut request)),
            }
        });
        address
    }

    async fn request(server: SocketAddr) -> std::io::Result<String> {
        let mut connection = TcpStream::connect(server).await?;
        connection.write_all(b"DELETE / HTTP/1.1\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test(start_paused = true)]
    async fn answer_arrives_before_the_timeout_of_a_paused_clock() {
        let server = slow_server(Some(Duration::from_millis(50)));
        let start = Instant::now();
        let answer = timeout(SECOND, outside(request(server))).await;
        let answer = answer.expect("no time passes").expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        assert_eq!(start.elapsed(), Duration::ZERO);
        // The clock is paused as before.
        sleep(3600 * SECOND).await;
        assert_eq!(start.elapsed(), 3600 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_answer_times_out_when_the_clock_is_released() {
        let server = slow_server(None);
        let answer = timeout(SECOND, hold(request(server), Duration::from_millis(50))).await;
        assert!(answer.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_work_releases_the_clock() {
        let start = std::time::Instant::now();
        let mut work = Box::pin(hold(std::future::pending::<()>(), 10 * SECOND));
        assert!(is_pending(&mut work).await);
        drop(work);
        sleep(SECOND).await;
        assert!(start.elapsed() < 5 * SECOND);
    }

    #[test]
    fn real_clock_is_not_held() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut work = Box::pin(hold(std::future::pending::<()>(), 10 * SECOND));
            assert!(is_pending(&mut work).await);
            let thread_is_free = timeout(5 * SECOND, tokio::task::spawn_blocking(|| ())).await;
            assert!(thread_is_free.is_ok());
        });
    }

    /// Polls once.
    async fn is_pending<F: Future + Unpin>(work: &mut F) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_pending())).await
    }
}
