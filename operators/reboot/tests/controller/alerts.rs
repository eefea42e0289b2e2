//! The alert gate, with a Prometheus server in this process.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use windlass::{
    k8s_openapi::api::core::v1::Event,
    kube::{Api, api::ListParams},
    prelude::*,
    runtime::CrdInstaller,
};
use windlass_reboot::{Arguments, Prometheus, RebootPolicy, setup_with};
use windlass_suite::{Context as Case, RunningManager};

use crate::controller::{
    fleet::Fleet,
    roll::{at_a_time, status},
};

/// What the server does.
#[derive(Clone, Copy, Default)]
enum Mood {
    #[default]
    Clear,
    Firing,
    /// Accepts requests and does not answer.
    Silent,
    /// Answers with more than is read.
    Endless,
    /// Refuses connections.
    Down,
}

#[derive(Clone, Default)]
struct Server {
    mood: Arc<Mutex<Mood>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn prometheus(&self) -> Prometheus {
        let server = self.clone();
        let connector = tower::service_fn(move |_: Uri| std::future::ready(server.connect()));
        Prometheus::with_connector(connector, Uri::from_static("http://prometheus:9090/base/"), None)
    }

    fn connect(&self) -> io::Result<TokioIo<Stream>> {
        if matches!(*self.mood.lock(), Mood::Down) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let server = self.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let server = server.clone();
                async move { server.answer(&request).await }
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(theirs), service)
                .await;
        });
        Ok(TokioIo::new(Stream(ours)))
    }

    async fn answer(&self, request: &Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        self.queries.lock().push(request.uri().to_string());
        let mood = *self.mood.lock();
        let result = match mood {
            Mood::Silent => std::future::pending().await,
            Mood::Endless => return Ok(Response::new(Full::new(Bytes::from(vec![b'x'; 2 << 20])))),
            Mood::Down => return Err(io::ErrorKind::ConnectionReset.into()),
            Mood::Firing => json!([{ "metric": { "alertname": "DiskFull" }, "value": [1, "1"] }]),
            Mood::Clear => json!([]),
        };
        let answer = json!({ "status": "success", "data": { "resultType": "vector", "result": result } });
        Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
    }
}

/// A connection within the process.
struct Stream(DuplexStream);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Waits until the policy reports this reason, with this text in its message.
async fn wait_for_reason(fleet: &Fleet, reason: &str, text: &str) -> anyhow::Result<()> {
    let is_reported = |policy: &RebootPolicy| {
        let conditions = status(policy).conditions;
        let progressing = conditions.of_type("Progressing");
        progressing.is_some_and(|one| one.reason == reason && one.message.contains(text))
    };
    fleet.wait_for_policy(is_reported).await?;
    Ok(())
}

/// Whether the condition `AlertsIgnored` has this status and this text.
fn ignores_alerts(expected: &'static str, text: &'static str) -> impl Fn(&RebootPolicy) -> bool {
    move |policy| {
        let conditions = status(policy).conditions;
        let ignored = conditions.of_type("AlertsIgnored");
        ignored.is_some_and(|one| one.status == expected && one.message.contains(text))
    }
}

pub(crate) async fn firing_alerts_block_new_reboots(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["alerts"] = json!({});
    let fleet = Fleet::idle(&case, 2, spec).await?;
    let server = Server::default();
    server.set(Mood::Firing);
    let manager = Manager::new(fleet.proxy.client()).install(CrdInstaller::new([RebootPolicy::crd()]));
    let manager = setup_with(
        manager,
        &Arguments::default(),
        fleet.clock,
        Some(server.prometheus()),
    )?;
    let running = RunningManager::start(manager);
    let node = fleet.name(0);
    fleet.request(&node).await?;
    wait_for_reason(&fleet, "AlertsFiring", "alerts are firing: DiskFull").await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert!(fleet.view(&node).await?.state.is_none(), "nothing starts");
    let query = server.queries.lock().first().cloned();
    assert_eq!(
        query.as_deref(),
        Some(
            "/base/api/v1/query?query=ALERTS%7Balertstate%3D%22firing%22%2Calertname%21%3D%22Watchdog%22%7D"
        )
    );
    // It fails closed.
    if fleet.is_embedded() {
        for (mood, text) in [
            (Mood::Down, "cannot reach --prometheus-url"),
            (Mood::Silent, "no answer within 10 s"),
            (Mood::Endless, "1048576 bytes at most"),
        ] {
            server.set(mood);
            wait_for_reason(&fleet, "AlertsUnknown", text).await?;
            fleet.pass_time(Duration::from_mins(10)).await;
            assert!(fleet.view(&node).await?.state.is_none(), "{text}");
        }
        server.set(Mood::Clear);
        fleet.wait_until_idle(&node).await?;
        assert_eq!(fleet.boots(&node), 1);
    }
    // Unless the policy says otherwise.
    server.set(Mood::Down);
    fleet
        .change_policy(json!({ "alerts": { "onError": "Allow" } }))
        .await?;
    fleet.request(&fleet.name(1)).await?;
    // That is visible, also after the reboot.
    fleet
        .wait_for_policy(ignores_alerts("True", "cannot reach --prometheus-url"))
        .await?;
    if !fleet.is_embedded() {
        // No machine reboots here: one node gets the slot.
        let is_granted = |policy: &RebootPolicy| status(policy).rebooting == 1;
        fleet.wait_for_policy(is_granted).await?;
        running.stop().await?;
        return fleet.end().await;
    }
    fleet.wait_until_idle(&fleet.name(1)).await?;
    server.set(Mood::Clear);
    fleet.request(&node).await?;
    fleet.wait_until_idle(&node).await?;
    fleet.wait_for_policy(ignores_alerts("False", "")).await?;
    running.stop().await?;
    let about = format!(
        "involvedObject.kind=RebootPolicy,involvedObject.name={}",
        fleet.policy
    );
    let events = Api::<Event>::all(case.client());
    let events = events.list(&ListParams::default().fields(&about)).await?.items;
    let ignored = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("AlertsIgnored"));
    let ignored: Vec<_> = ignored.map(|event| event.type_.as_deref()).collect();
    assert_eq!(ignored, [Some("Warning")], "one grant: {events:?}");
    fleet.end().await
}
