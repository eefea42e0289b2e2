//! Clients that are slow, silent, greedy or many hold nothing for long, and the administrator always gets in.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_apiserver::{Limits, Server};

use crate::line::{Client, PATIENCE, Served};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SHORT: Duration = Duration::from_millis(200);

/// Limits that are never reached unless a test says so.
fn patient() -> Limits {
    let mut limits = Limits::default();
    let long = Duration::from_hours(1);
    (limits.handshake, limits.header, limits.body) = (long, long, long);
    (limits.idle, limits.unread, limits.ping, limits.pong) = (long, long, long, long);
    limits
}

async fn serve(limits: Limits) -> Served {
    Served::start(Server::builder(), limits).await
}

#[tokio::test]
async fn silent_tcp_connection_is_dropped() {
    let mut limits = patient();
    limits.handshake = SHORT;
    let served = serve(limits).await;
    let mut silent = served.tcp().await;
    let read = tokio::time::timeout(PATIENCE, silent.read(&mut [0; 64])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
}

#[tokio::test]
async fn connection_without_a_whole_first_request_is_dropped() {
    let mut limits = patient();
    limits.header = SHORT;
    let served = serve(limits).await;
    for (protocol, said) in [
        ("", ""),
        ("http/1.1", ""),
        ("http/1.1", "G"),
        ("http/1.1", "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: "),
        ("h2", ""),
        ("h2", "PRI * HTTP/2.0\r\n"),
        ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let mut client = served.connect(protocol, None).await;
        client.say(said).await;
        client.closed().await;
    }
}

#[tokio::test]
async fn head_that_trickles_after_an_answer_is_dropped() {
    let mut limits = patient();
    limits.header = SHORT;
    let served = serve(limits).await;
    let mut client = served.anonymous().await;
    assert_eq!(client.ask("GET", "/version", "").await.0, 200);
    client.say("GET /version HT").await;
    client.closed().await;
}

#[tokio::test]
async fn body_that_stops_is_answered_and_the_connection_dropped() {
    let mut limits = patient();
    limits.body = SHORT;
    let served = serve(limits).await;
    let mut client = served.anonymous().await;
    let head = "host: x\r\ncontent-type: application/json\r\ncontent-length: 100";
    client
        .say(format!("POST {MAPS} HTTP/1.1\r\n{head}\r\n\r\n{{"))
        .await;
    assert_eq!(client.head().await.0, 504);
    client.closed().await;
}

#[tokio::test]
async fn idle_connection_is_closed_and_a_quiet_watch_is_not() {
    let mut limits = patient();
    (limits.idle, limits.unread) = (SHORT, SHORT);
    let served = serve(limits).await;
    let mut watch = served.anonymous().await;
    watch.send("GET", &format!("{MAPS}?watch=1"), "").await;
    assert_eq!(watch.head().await.0, 200);
    for _ in 0..3 {
        let mut idle = served.anonymous().await;
        assert_eq!(idle.ask("GET", "/version", "").await.0, 200);
        idle.closed().await;
    }
    // At least three times the limit has passed by now.
    let mut writer = served.anonymous().await;
    let map = r#"{"metadata":{"name":"late"}}"#;
    assert_eq!(writer.ask("POST", MAPS, map).await.0, 201);
    watch.expect("late").await;
}

#[tokio::test]
async fn watch_that_nobody_reads_is_cut() {
    let mut limits = patient();
    (limits.unread, limits.watches) = (SHORT, 1);
    let served = serve(limits).await;
    let watch = format!("{MAPS}?watch=1");
    let mut deaf = served.anonymous().await;
    deaf.send("GET", &watch, "").await;
    assert_eq!(deaf.head().await.0, 200);
    // More than the socket's buffers take.
    let mut writer = served.anonymous().await;
    for index in 0..40 {
        let map = format!(
            r#"{{"metadata":{{"name":"m{index}"}},"data":{{"k":"{}"}}}}"#,
            "x".repeat(1_000_000)
        );
        assert_eq!(writer.ask("POST", MAPS, &map).await.0, 201);
    }
    // The only watch that there may be is free again when the first one is cut.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut other = served.anonymous().await;
        other.send("GET", &watch, "").await;
        match other.head().await.0 {
            200 => break,
            code => assert_eq!(code, 429),
        }
        assert!(tokio::time::Instant::now() < deadline, "it is never cut");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection that is busy with a watch.
async fn busy(mut client: Client) -> Client {
    client.send("GET", &format!("{MAPS}?watch=1"), "").await;
    assert_eq!(client.head().await.0, 200);
    client
}

#[tokio::test]
async fn administrator_gets_in_when_every_connection_is_busy() {
    let mut limits = patient();
    (limits.connections, limits.reserved) = (2, 2);
    let served = serve(limits).await;
    let _busy = [
        busy(served.user("alice", None).await).await,
        busy(served.anonymous().await).await,
    ];
    // Silent ones only displace each other.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(served.anonymous().await);
    }
    for user in ["bob", "carol", "dave"] {
        let mut client = served.user(user, None).await;
        client.send("GET", "/version", "").await;
        let (code, head) = client.head().await;
        assert_eq!(code, 429);
        assert!(head.contains("retry-after: 1"), "{head}");
        client.closed().await;
    }
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.ask("GET", "/version", "").await.0, 200);
    let mut check = served.anonymous().await;
    assert_eq!(check.ask("GET", "/livez", "").await.0, 200);
    assert_eq!(administrator.ask("GET", "/version", "").await.0, 200);
    silent.remove(0).closed().await;
}

#[tokio::test]
async fn idle_connection_makes_room_and_the_anonymous_one_first() {
    let mut limits = patient();
    (limits.connections, limits.reserved) = (2, 1);
    let served = serve(limits).await;
    let mut known = served.user("alice", None).await;
    assert_eq!(known.ask("GET", "/version", "").await.0, 200);
    let mut anonymous = served.anonymous().await;
    assert_eq!(anonymous.ask("GET", "/version", "").await.0, 200);
    let mut third = served.user("bob", None).await;
    assert_eq!(third.ask("GET", "/version", "").await.0, 200);
    anonymous.closed().await;
    assert_eq!(known.ask("GET", "/version", "").await.0, 200);
}

/// A frame of HTTP/2.
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

/// The frames of what a server said: kind and payload.
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

async fn http2(served: &Served) -> Client {
    let mut client = served.connect("h2", None).await;
    client.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.say(frame(SETTINGS, 0, 0, &[])).await;
    client
}

#[tokio::test]
async fn http2_client_that_answers_no_ping_is_dropped() {
    let mut limits = patient();
    (limits.ping, limits.pong) = (SHORT, SHORT);
    let served = serve(limits).await;
    let mut client = http2(&served).await;
    let said = frames(&client.closed().await);
    let settings = said.iter().find(|(kind, _)| *kind == SETTINGS).expect("settings");
    // SETTINGS_MAX_CONCURRENT_STREAMS is 3.
    let streams = settings.1.chunks(6).find(|setting| setting[..2] == [0, 3]);
    assert_eq!(streams.expect("a limit")[2..], 100_u32.to_be_bytes());
}

#[tokio::test]
async fn http2_client_that_takes_everything_back_is_dropped() {
    let mut limits = patient();
    limits.resets = 5;
    let served = serve(limits).await;
    let mut client = http2(&served).await;
    // As HPACK: method and scheme are of the static table, path and authority are literals.
    let path = format!("{MAPS}?watch=1");
    let mut head = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).expect("short")];
    head.extend(path.as_bytes());
    head.extend([0x01, 1, b'x']);
    let (mut stream, most) = (1, 1_000);
    while stream < most {
        let said = client.stream.write_all(&frame(HEADERS, 0x5, stream, &head)).await;
        if said.is_err() || client.stream.flush().await.is_err() {
            break;
        }
        // The server has begun with it once it says something: what is taken back before that costs nothing.
        let read = tokio::time::timeout(Duration::from_secs(1), client.stream.read(&mut [0; 4096])).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
        let said = client
            .stream
            .write_all(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()))
            .await;
        if said.is_err() || client.stream.flush().await.is_err() {
            break;
        }
        stream += 2;
    }
    assert!(stream < most, "it may go on without end");
}
