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
    // Connections that do not authenticate only displace each other: silent ones, and those that are kept busy by an
    // answer that is not read.
    let mut unknown = Vec::new();
    for _ in 0..10 {
        unknown.push(served.anonymous().await);
        unknown.push(busy_health_check(&served).await);
        unknown.push(busy_unauthorized(&served).await);
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
    unknown.remove(0).wait_until_closed().await;
}

/// An HTTP/2 connection whose client sends a request, and closes the window of its answer.
async fn busy_with(served: &TestServer, headers: &[u8]) -> Client {
    let mut client = http2(served, None).await;
    // SETTINGS_INITIAL_WINDOW_SIZE is 4.
    client.write(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
    client.write(headers).await;
    let mut reader = FrameReader::default();
    while reader.next(&mut client).await.0 != HEADERS {}
    client
}

async fn busy_health_check(served: &TestServer) -> Client {
    busy_with(served, &get_frame(1, "/livez")).await
}

/// Gets 401.
async fn busy_unauthorized(served: &TestServer) -> Client {
    let mut head = vec![0x82, 0x87, 0x84, 0x01, 1, b'x'];
    // A literal `authorization`, which is 23 in the static table.
    head.extend([0x0f, 23 - 15, 8]);
    head.extend(b"Bearer x");
    busy_with(served, &frame(HEADERS, 0x5, 1, &head)).await
}

#[tokio::test]
async fn tenant_with_many_busy_connections_leaves_some_to_others() {
    let mut limits = long_timeouts();
    (limits.connections, limits.reserved_connections) = (4, 2);
    let served = serve(limits).await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(open_watch(served.user("mallory", None).await).await);
    }
    // A further one of the same user is refused.
    let mut further = served.user("mallory", None).await;
    assert_eq!(further.call("GET", "/version", "").await.0, 429);
    // Others displace the oldest, until all have as many.
    let mut others = Vec::new();
    for user in ["alice", "bob"] {
        others.push(open_watch(served.user(user, None).await).await);
        watches.remove(0).wait_until_closed().await;
    }
    let mut anonymous = open_watch(served.anonymous().await).await;
    watches.remove(0).wait_until_closed().await;
    // No tenant has two more than another.
    let mut carol = served.user("carol", None).await;
    assert_eq!(carol.call("GET", "/version", "").await.0, 429);
    let mut writer = served.administrator().await;
    let map = r#"{"metadata":{"name":"seen"}}"#;
    assert_eq!(writer.call("POST", CONFIG_MAPS, map).await.0, 201);
    for watch in others.iter_mut().chain(&mut watches).chain([&mut anonymous]) {
        watch.wait_for("seen").await;
    }
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

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// The flag of a stream's last frame.
const END_STREAM: u8 = 1;

/// The window of a stream and of a connection whose client changes neither.
const DEFAULT_WINDOW: usize = 65_535;

/// Encodes the HEADERS frame of a GET request. In HPACK, method and scheme come from the static table; path and authority
/// are literals.
fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    let mut head = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).expect("short")];
    head.extend(path.as_bytes());
    head.extend([0x01, 1, b'x']);
    frame(HEADERS, 0x5, stream, &head)
}

/// Reads the frames of an HTTP/2 connection one by one.
#[derive(Default)]
struct FrameReader(Vec<u8>);

impl FrameReader {
    /// The next frame: type, flags and payload.
    async fn next(&mut self, client: &mut Client) -> (u8, u8, Vec<u8>) {
        loop {
            if let [a, b, c, kind, flags, _, _, _, _, rest @ ..] = &self.0[..] {
                let (kind, flags) = (*kind, *flags);
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let payload = payload.to_vec();
                    self.0.drain(..9 + length);
                    return (kind, flags, payload);
                }
            }
            let mut buffer = vec![0; 64 * 1024];
            let read = tokio::time::timeout(TIMEOUT, client.stream.read(&mut buffer)).await;
            let read = read.expect("the server sent no further frame").unwrap_or(0);
            assert!(read > 0, "the server closed the connection");
            self.0.extend_from_slice(&buffer[..read]);
        }
    }

    /// Reads this much of the answers' bodies, or up to the end of one.
    async fn read_data(&mut self, client: &mut Client, most: usize) -> usize {
        let mut received = 0;
        while received < most {
            let (kind, flags, payload) = self.next(client).await;
            if kind == DATA {
                received += payload.len();
                if flags & END_STREAM != 0 {
                    break;
                }
            }
        }
        received
    }
}

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

async fn http2(served: &TestServer, user: Option<&str>) -> Client {
    let user = user.map(|name| (name, None));
    let mut client = served.connect("h2", user).await;
    client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.write(frame(SETTINGS, 0, 0, &[])).await;
    client
}

#[tokio::test]
async fn http2_client_that_does_not_answer_pings_is_dropped() {
    let mut limits = long_timeouts();
    (limits.ping_interval, limits.ping_timeout) = (SHORT_TIMEOUT, SHORT_TIMEOUT);
    let served = serve(limits).await;
    let mut client = http2(&served, None).await;
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
    let mut client = http2(&served, None).await;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let (mut stream, most) = (1, 1_000);
    while stream < most {
        let written = client.stream.write_all(&get_frame(stream, &path)).await;
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

/// A server with a ConfigMap `big` that is much larger than an HTTP/2 window.
async fn serve_big_object(limits: Limits) -> TestServer {
    let served = serve(limits).await;
    let map = format!(
        r#"{{"metadata":{{"name":"big"}},"data":{{"k":"{}"}}}}"#,
        "x".repeat(BIG_BYTES)
    );
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.call("POST", CONFIG_MAPS, &map).await.0, 201);
    served
}

const BIG_BYTES: usize = 1_000_000;

#[tokio::test]
async fn unread_http2_answer_counts_against_the_limit_until_it_is_read() {
    let mut limits = long_timeouts();
    limits.reads = 1;
    let served = serve_big_object(limits).await;
    let (big, small) = (
        format!("{CONFIG_MAPS}/big"),
        "/api/v1/namespaces/default".to_owned(),
    );
    let mut mallory = http2(&served, Some("mallory")).await;
    mallory.write(get_frame(1, &big)).await;
    let mut reader = FrameReader::default();
    let received = reader.read_data(&mut mallory, DEFAULT_WINDOW).await;
    assert_eq!(received, DEFAULT_WINDOW);
    let mut alice = served.user("alice", None).await;
    for _ in 0..3 {
        assert_eq!(alice.call("GET", &small, "").await.0, 429);
    }
    let increment = (1_u32 << 30).to_be_bytes();
    for stream in [0, 1] {
        mallory.write(frame(WINDOW_UPDATE, 0, stream, &increment)).await;
    }
    let rest = reader.read_data(&mut mallory, usize::MAX).await;
    assert!(received + rest > BIG_BYTES, "{received} + {rest}");
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while alice.call("GET", &small, "").await.0 != 200 {
        let now = tokio::time::Instant::now();
        assert!(now < deadline, "the answer still counts after it was read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn unread_http2_answer_is_cut() {
    let mut limits = long_timeouts();
    limits.unread_timeout = SHORT_TIMEOUT;
    let served = serve_big_object(limits).await;
    let mut mallory = http2(&served, Some("mallory")).await;
    mallory.write(get_frame(1, &format!("{CONFIG_MAPS}/big"))).await;
    let mut reader = FrameReader::default();
    while reader.next(&mut mallory).await.0 != RST_STREAM {}
    // The other streams of the connection are not affected.
    mallory.write(get_frame(3, "/livez")).await;
    while reader.next(&mut mallory).await.0 != HEADERS {}
}

#[tokio::test]
async fn unread_answers_of_one_user_leave_reads_for_others() {
    let mut limits = long_timeouts();
    limits.reads = 8;
    let served = serve_big_object(limits).await;
    let mut mallory = http2(&served, Some("mallory")).await;
    // No answer is read but for the windows that are open from the start.
    for stream in 0..20 {
        mallory
            .write(get_frame(2 * stream + 1, &format!("{CONFIG_MAPS}/big")))
            .await;
    }
    let mut reader = FrameReader::default();
    let mut heads = 0;
    while heads < 20 {
        heads += usize::from(reader.next(&mut mallory).await.0 == HEADERS);
    }
    let mut alice = served.user("alice", None).await;
    assert_eq!(alice.call("GET", "/api/v1/namespaces/default", "").await.0, 200);
}

/// Opens an HTTP/2 connection whose streams may send one byte, and gets an object that fits into one frame.
async fn get_with_closed_window(served: &TestServer) -> Client {
    let map = format!(
        r#"{{"metadata":{{"name":"small"}},"data":{{"k":"{}"}}}}"#,
        "x".repeat(50_000)
    );
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.call("POST", CONFIG_MAPS, &map).await.0, 201);
    let mut mallory = http2(served, Some("mallory")).await;
    // SETTINGS_INITIAL_WINDOW_SIZE is 4.
    mallory.write(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])).await;
    mallory.write(get_frame(1, &format!("{CONFIG_MAPS}/small"))).await;
    mallory
}

#[tokio::test]
async fn small_unread_http2_answer_counts_against_the_limit_until_it_is_read() {
    let mut limits = long_timeouts();
    limits.reads = 1;
    let served = serve(limits).await;
    let mut mallory = get_with_closed_window(&served).await;
    let mut reader = FrameReader::default();
    assert_eq!(reader.read_data(&mut mallory, 1).await, 1);
    let mut alice = served.user("alice", None).await;
    for _ in 0..3 {
        assert_eq!(alice.call("GET", "/api/v1/namespaces/default", "").await.0, 429);
    }
    let increment = (1_u32 << 30).to_be_bytes();
    mallory.write(frame(WINDOW_UPDATE, 0, 1, &increment)).await;
    assert!(reader.read_data(&mut mallory, usize::MAX).await > 50_000);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while alice.call("GET", "/api/v1/namespaces/default", "").await.0 != 200 {
        let now = tokio::time::Instant::now();
        assert!(now < deadline, "the answer still counts after it was read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn connection_with_a_small_unread_http2_answer_is_closed() {
    let mut limits = long_timeouts();
    limits.unread_timeout = SHORT_TIMEOUT;
    let served = serve(limits).await;
    let mut mallory = get_with_closed_window(&served).await;
    // Other requests on the connection do not keep it open.
    let mut stream = 3;
    loop {
        let sent = mallory.stream.write_all(&get_frame(stream, "/version")).await;
        if sent.is_err() || mallory.stream.flush().await.is_err() {
            break;
        }
        let read = tokio::time::timeout(SHORT_TIMEOUT / 4, mallory.stream.read(&mut [0; 4096])).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
        stream += 2;
        assert!(stream < 1_000, "the connection is still open");
        tokio::time::sleep(SHORT_TIMEOUT / 4).await;
    }
}
