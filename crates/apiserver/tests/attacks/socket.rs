//! Slow, silent, greedy or numerous clients cannot hold connections for long, and the administrator can always connect.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_apiserver::{Limits, Server};

use crate::attacks::harness::{Client, TIMEOUT, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Timeouts long enough that no test reaches them; each test shortens the one it is about.
fn long_timeouts() -> Limits {
    let mut limits = Limits::default();
    let long = Duration::from_hours(1);
    (
        limits.handshake_timeout,
        limits.header_timeout,
        limits.body_timeout,
    ) = (long, long, long);
    (
        limits.idle_timeout,
        limits.unread_timeout,
        limits.ping_interval,
        limits.ping_timeout,
    ) = (long, long, long, long);
    limits
}

async fn serve(limits: Limits) -> TestServer {
    TestServer::start(Server::builder(), limits).await
}

#[tokio::test]
async fn silent_tcp_connection_is_dropped() {
    let mut limits = long_timeouts();
    limits.handshake_timeout = SHORT_TIMEOUT;
    let served = serve(limits).await;
    let mut silent = served.tcp().await;
    let read = tokio::time::timeout(TIMEOUT, silent.read(&mut [0; 64])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
}

#[tokio::test]
async fn connection_without_a_complete_first_request_is_dropped() {
    let mut limits = long_timeouts();
    limits.header_timeout = SHORT_TIMEOUT;
    let served = serve(limits).await;
    for (protocol, sent) in [
        ("", ""),
        ("http/1.1", ""),
        ("http/1.1", "G"),
        ("http/1.1", "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: "),
        ("h2", ""),
        ("h2", "PRI * HTTP/2.0\r\n"),
        ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let mut client = served.connect(protocol, None).await;
        client.write(sent).await;
        client.wait_until_closed().await;
    }
}

#[tokio::test]
async fn connection_with_an_incomplete_second_request_is_dropped() {
    let mut limits = long_timeouts();
    limits.header_timeout = SHORT_TIMEOUT;
    let served = serve(limits).await;
    let mut client = served.anonymous().await;
    assert_eq!(client.call("GET", "/version", "").await.0, 200);
    client.write("GET /version HT").await;
    client.wait_until_closed().await;
}

#[tokio::test]
async fn stalled_body_gets_a_504_and_the_connection_is_dropped() {
    let mut limits = long_timeouts();
    limits.body_timeout = SHORT_TIMEOUT;
    let served = serve(limits).await;
    let mut client = served.anonymous().await;
    let head = "host: x\r\ncontent-type: application/json\r\ncontent-length: 100";
    client
        .write(format!("POST {CONFIG_MAPS} HTTP/1.1\r\n{head}\r\n\r\n{{"))
        .await;
    assert_eq!(client.read_head().await.0, 504);
    client.wait_until_closed().await;
}

#[tokio::test]
async fn idle_connection_is_closed_and_a_quiet_watch_is_not() {
    let mut limits = long_timeouts();
    (limits.idle_timeout, limits.unread_timeout) = (SHORT_TIMEOUT, SHORT_TIMEOUT);
    let served = serve(limits).await;
    let mut watch = served.anonymous().await;
    watch.send("GET", &format!("{CONFIG_MAPS}?watch=1"), "").await;
    assert_eq!(watch.read_head().await.0, 200);
    for _ in 0..3 {
        let mut idle = served.anonymous().await;
        assert_eq!(idle.call("GET", "/version", "").await.0, 200);
        idle.wait_until_closed().await;
    }
    // At least three times the limit has passed.
    let mut writer = served.anonymous().await;
    let map = r#"{"metadata":{"name":"late"}}"#;
    assert_eq!(writer.call("POST", CONFIG_MAPS, map).await.0, 201);
    watch.wait_for("late").await;
}

#[tokio::test]
async fn unread_watch_is_cut() {
    let mut limits = long_timeouts();
    (limits.unread_timeout, limits.watches) = (SHORT_TIMEOUT, 1);
    let served = serve(limits).await;
    let watch = format!("{CONFIG_MAPS}?watch=1");
    let mut slow_reader = served.anonymous().await;
    slow_reader.send("GET", &watch, "").await;
    assert_eq!(slow_reader.read_head().await.0, 200);
    // More than the socket's buffers hold.
    let mut writer = served.anonymous().await;
    for index in 0..40 {
        let map = format!(
            r#"{{"metadata":{{"name":"m{index}"}},"data":{{"k":"{}"}}}}"#,
            "x".repeat(1_000_000)
        );
        assert_eq!(writer.call("POST", CONFIG_MAPS, &map).await.0, 201);
    }
    // Only one watch is allowed: a second one succeeds once the first is cut.
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let mut other = served.anonymous().await;
        other.send("GET", &watch, "").await;
        match other.read_head().await.0 {
            200 => break,
            code => assert_eq!(code, 429),
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the unread watch is still open"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Keeps the connection busy with a watch.
async fn open_watch(mut client: Client) -> Client {
    client.send("GET", &format!("{CONFIG_MAPS}?watch=1"), "").await;
    assert_eq!(client.read_head().await.0, 200);
    client
}

#[tokio::test]
async fn administrator_can_connect_when_every_connection_is_busy() {
    let mut limits = long_timeouts();
    (limits.connections, limits.reserved_connections) = (2, 2);
    let served = serve(limits).await;
    let _busy = [
        open_watch(served.user("alice", None).await).await,
        open_watch(served.anonymous().await).await,
    ];
    // Silent connections only displace each other.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(served.anonymous().await);
    }
    for user in ["bob", "carol", "dave"] {
        let mut client = served.user(user, None).await;
        client.send("GET", "/version", "").await;
        let (code, head) = client.read_head().await;
        assert_eq!(code, 429);
        assert!(head.contains("retry-after: 1"), "{head}");
        client.wait_until_closed().await;
    }
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.call("GET", "/version", "").await.0, 200);
    let mut check = served.anonymous().await;
    assert_eq!(check.call("GET", "/livez", "").await.0, 200);
    assert_eq!(administrator.call("GET", "/version", "").await.0, 200);
    silent.remove(0).wait_until_closed().await;
}

#[tokio::test]
async fn idle_anonymous_connection_is_displaced_before_an_authenticated_one() {
    let mut limits = long_timeouts();
    (limits.connections, limits.reserved_connections) = (2, 1);
    let served = serve(limits).await;
    let mut known = served.user("alice", None).await;
    assert_eq!(known.call("GET", "/version", "").await.0, 200);
    let mut anonymous = served.anonymous().await;
    assert_eq!(anonymous.call("GET", "/version", "").await.0, 200);
    let mut third = served.user("bob", None).await;
    assert_eq!(third.call("GET", "/version", "").await.0, 200);
    anonymous.wait_until_closed().await;
    assert_eq!(known.call("GET", "/version", "").await.0, 200);
}

/// Encodes an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

/// Splits a server's bytes into frames: type and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let length = length.min(rest.len());
        frames.push((*kind, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    frames
}

async fn http2(served: &TestServer) -> Client {
    let mut client = served.connect("h2", None).await;
    client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.write(frame(SETTINGS, 0, 0, &[])).await;
    client
}

#[tokio::test]
async fn http2_client_that_does_not_answer_pings_is_dropped() {
    let mut limits = long_timeouts();
    (limits.ping_interval, limits.ping_timeout) = (SHORT_TIMEOUT, SHORT_TIMEOUT);
    let served = serve(limits).await;
    let mut client = http2(&served).await;
    let received = frames(&client.wait_until_closed().await);
    let settings = received
        .iter()
        .find(|(kind, _)| *kind == SETTINGS)
        .expect("settings");
    // SETTINGS_MAX_CONCURRENT_STREAMS is 3.
    let streams = settings.1.chunks(6).find(|setting| setting[..2] == [0, 3]);
    assert_eq!(streams.expect("a limit")[2..], 100_u32.to_be_bytes());
}

#[tokio::test]
async fn http2_client_that_resets_every_stream_is_dropped() {
    let mut limits = long_timeouts();
    limits.resets = 5;
    let served = serve(limits).await;
    let mut client = http2(&served).await;
    // In HPACK, method and scheme come from the static table; path and authority are literals.
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut head = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).expect("short")];
    head.extend(path.as_bytes());
    head.extend([0x01, 1, b'x']);
    let (mut stream, most) = (1, 1_000);
    while stream < most {
        let written = client.stream.write_all(&frame(HEADERS, 0x5, stream, &head)).await;
        if written.is_err() || client.stream.flush().await.is_err() {
            break;
        }
        // Wait until the server responds: a stream that is reset before that costs the server nothing.
        let read = tokio::time::timeout(Duration::from_secs(1), client.stream.read(&mut [0; 4096])).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
        let written = client
            .stream
            .write_all(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()))
            .await;
        if written.is_err() || client.stream.flush().await.is_err() {
            break;
        }
        stream += 2;
    }
    assert!(stream < most, "the server did not limit stream resets");
}
