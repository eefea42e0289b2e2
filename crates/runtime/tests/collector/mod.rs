//! A collector on loopback that records what it receives. It runs in threads of its own and shares no HTTP library with the
//! exporter.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::Metric,
    trace::v1::Span,
};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::mpsc;

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: Arc<Mutex<Vec<Received>>>,
    arrivals: mpsc::UnboundedReceiver<()>,
}

#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Collector {
    /// Answers the first requests for traces with these heads, and all others with 200.
    pub(crate) fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("local address"));
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let records = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, records) = (stream.expect("a connection"), Arc::clone(&records));
                let (answers, arrived) = (Arc::clone(&answers), arrived.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(request) = read(&mut reader) {
                        let is_traces = request.path.ends_with("/traces");
                        records.lock().push(request);
                        let mut answers = answers.lock();
                        let answer = match &mut *answers {
                            scripted if is_traces && !scripted.is_empty() => scripted.remove(0),
                            _ => "200 OK\r\n",
                        };
                        let answer = format!("HTTP/1.1 {answer}content-length: 0\r\n\r\n");
                        let _ = reader.get_mut().write_all(answer.as_bytes());
                        let _ = arrived.send(());
                    }
                });
            }
        });
        Self {
            endpoint,
            received,
            arrivals,
        }
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) {
        self.arrivals.recv().await.expect("the collector runs");
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// All spans, with the attributes of their resource.
    pub(crate) fn spans(&self) -> Vec<(Vec<KeyValue>, Span)> {
        let received = self.received();
        let requests = received
            .iter()
            .filter(|request| request.path.ends_with("/v1/traces"));
        let decoded = requests
            .map(|request| ExportTraceServiceRequest::decode(&*request.body).expect("a request for traces"));
        let resources = decoded.flat_map(|request| request.resource_spans);
        resources
            .flat_map(|spans| {
                let resource = spans.resource.expect("a resource").attributes;
                let scopes = spans.scope_spans.into_iter();
                scopes
                    .flat_map(|scope| scope.spans)
                    .map(move |span| (resource.clone(), span))
            })
            .collect()
    }

    /// The metrics of the last push, with the attributes of their resource.
    pub(crate) fn metrics(&self) -> (Vec<KeyValue>, Vec<Metric>) {
        let received = self.received();
        let mut requests = received.iter().rev();
        let last = requests
            .find(|request| request.path.ends_with("/v1/metrics"))
            .expect("a push");
        let mut request = ExportMetricsServiceRequest::decode(&*last.body).expect("a request for metrics");
        let metrics = request.resource_metrics.pop().expect("a resource");
        let scopes = metrics.scope_metrics.into_iter();
        (
            metrics.resource.expect("a resource").attributes,
            scopes.flat_map(|scope| scope.metrics).collect(),
        )
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    let head = head.to_lowercase();
    let length = head.split_once("content-length: ").expect("a length").1;
    let length = length.lines().next().and_then(|length| length.parse().ok());
    let mut body = vec![0; length.expect("a number")];
    reader.read_exact(&mut body).ok()?;
    Some(Received { path, head, body })
}

/// The value of an attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}
