//! Sends batches of spans, and the metrics at an interval, until stopped; then flushes once, within a limit.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use opentelemetry_proto::{
    tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    transform::{
        common::tonic::ResourceAttributesWithSchema, trace::tonic::group_spans_by_resource_and_scope,
    },
};
use opentelemetry_sdk::{Resource, trace::SpanData};
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout},
};

use super::{
    config::Signal,
    http::{Collector, PostError},
    metrics,
    report::{DropReason, Losses},
};
use crate::{metrics::Metrics, repeats::Repeats, stop::StopSignal};

/// The SDK's defaults for batches of spans.
const MAX_BATCH: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(5);

/// Delays between attempts to send a batch.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How long sending the rest may take at the stop.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends spans.
pub(super) struct SpanExporter {
    pub(super) collector: Collector,
    pub(super) spans: mpsc::Receiver<SpanData>,
    pub(super) resource: Resource,
    pub(super) losses: Arc<Losses>,
}

/// An encoded batch.
struct Batch {
    message: Bytes,
    spans: u64,
}

impl SpanExporter {
    pub(super) async fn run(mut self, mut stop: StopSignal) {
        let mut problems = Problems::new(Signal::Traces, &self.collector, &self.losses);
        let mut unsent = None;
        while let Some(batch) = self.next_batch(&mut stop).await {
            unsent = self.deliver(batch, &mut stop, &mut problems).await;
            if unsent.is_some() {
                break;
            }
        }
        // From here on, spans are dropped.
        self.spans.close();
        unsent = unsent.or_else(|| self.queued());
        let flush = async {
            while let Some(batch) = &unsent {
                if let Err(error) = self.send(batch).await {
                    problems.log(&error);
                    if matches!(error, PostError::Unavailable { .. }) {
                        return;
                    }
                }
                unsent = self.queued();
            }
        };
        let _ = timeout(FLUSH_TIMEOUT, flush).await;
        let left = unsent.map_or(0, |batch| batch.spans) + self.spans.len() as u64;
        self.losses.count_spans(DropReason::Stopped, left);
        if left > 0 {
            tracing::warn!(spans = left, "spans were not exported before the stop");
        }
        self.collector.close().await;
    }

    /// Waits for a full batch, or for some spans and the delay. `None`: stopped; what is left is in the queue.
    async fn next_batch(&mut self, stop: &mut StopSignal) -> Option<Batch> {
        let mut spans = Vec::new();
        let mut full_at = None;
        loop {
            let space = MAX_BATCH - spans.len();
            tokio::select! {
                biased;
                () = stop.requested() => return (!spans.is_empty()).then(|| self.encode(spans)),
                received = self.spans.recv_many(&mut spans, space), if space > 0 => {
                    // Every layer is gone.
                    if received == 0 {
                        return (!spans.is_empty()).then(|| self.encode(spans));
                    }
                    full_at.get_or_insert_with(|| Instant::now() + BATCH_DELAY);
                }
                () = sleep_until(full_at.unwrap_or_else(Instant::now)), if full_at.is_some() => {
                    return Some(self.encode(spans));
                }
            }
            if spans.len() == MAX_BATCH {
                return Some(self.encode(spans));
            }
        }
    }

    /// Takes a batch of what is in the queue now.
    fn queued(&mut self) -> Option<Batch> {
        let mut spans = Vec::new();
        while spans.len() < MAX_BATCH
            && let Ok(span) = self.spans.try_recv()
        {
            spans.push(span);
        }
        (!spans.is_empty()).then(|| self.encode(spans))
    }

    fn encode(&self, spans: Vec<SpanData>) -> Batch {
        let resource = ResourceAttributesWithSchema::from(&self.resource);
        let count = spans.len() as u64;
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(spans, &resource),
        };
        Batch {
            message: request.encode_to_vec().into(),
            spans: count,
        }
    }

    /// Sends a batch until the collector has accepted or rejected it. Returns it if it was stopped before.
    async fn deliver(&self, batch: Batch, stop: &mut StopSignal, problems: &mut Problems) -> Option<Batch> {
        let mut delay = FIRST_RETRY;
        loop {
            let sent = tokio::select! {
                biased;
                () = stop.requested() => return Some(batch),
                sent = self.send(&batch) => sent,
            };
            let retry_after = match sent {
                Ok(()) => {
                    problems.accepted();
                    return None;
                }
                Err(error) => {
                    problems.log(&error);
                    match error {
                        PostError::Rejected(_) => return None,
                        PostError::Unavailable { retry_after, .. } => retry_after,
                    }
                }
            };
            tokio::select! {
                biased;
                () = stop.requested() => return Some(batch),
                () = sleep(retry_after.unwrap_or(delay)) => {}
            }
            delay = (2 * delay).min(LONGEST_RETRY);
        }
    }

    /// Sends a batch once, and counts what the collector rejects.
    async fn send(&self, batch: &Batch) -> Result<(), PostError> {
        let response = self.collector.post(batch.message.clone()).await;
        match &response {
            Ok(body) => {
                let partial = ExportTraceServiceResponse::decode(body.clone())
                    .ok()
                    .and_then(|response| response.partial_success);
                let rejected = partial.map_or(0, |partial| partial.rejected_spans);
                let rejected = u64::try_from(rejected).unwrap_or(0).min(batch.spans);
                self.losses.count_spans(DropReason::Rejected, rejected);
            }
            Err(error) => {
                self.losses.count_failure(Signal::Traces);
                if matches!(error, PostError::Rejected(_)) {
                    self.losses.count_spans(DropReason::Rejected, batch.spans);
                }
            }
        }
        response.map(drop)
    }
}

/// Sends metrics.
pub(super) struct MetricExporter {
    pub(super) collector: Collector,
    pub(super) interval: Duration,
    pub(super) resource: Resource,
    /// Since when counters have counted, in nanoseconds since 1970.
    pub(super) start: u64,
    pub(super) losses: Arc<Losses>,
}

impl MetricExporter {
    /// A failed push is not repeated: the next one has newer values of the same counters.
    pub(super) async fn run(self, metrics: Metrics, mut stop: StopSignal) {
        let mut problems = Problems::new(Signal::Metrics, &self.collector, &self.losses);
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pushes = async {
            loop {
                ticks.tick().await;
                self.push(&metrics, &mut problems).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = pushes => {}
        }
        let _ = timeout(FLUSH_TIMEOUT, self.push(&metrics, &mut problems)).await;
        self.collector.close().await;
    }

    async fn push(&self, metrics: &Metrics, problems: &mut Problems) {
        let resource = ResourceAttributesWithSchema::from(&self.resource).attributes.0;
        let request = metrics::request(metrics, resource, self.start);
        match self.collector.post(request.encode_to_vec().into()).await {
            Ok(_) => problems.accepted(),
            Err(error) => {
                self.losses.count_failure(Signal::Metrics);
                problems.log(&error);
            }
        }
    }
}

/// Logs the problems of a signal.
struct Problems {
    signal: Signal,
    /// Without what may be secret.
    collector: String,
    losses: Arc<Losses>,
    /// Dropped spans at the last look.
    dropped: u64,
    repeats: Repeats,
}

impl Problems {
    fn new(signal: Signal, collector: &Collector, losses: &Arc<Losses>) -> Self {
        Self {
            signal,
            collector: collector.address(),
            losses: Arc::clone(losses),
            dropped: 0,
            repeats: Repeats::default(),
        }
    }

    fn log(&mut self, error: &PostError) {
        let (PostError::Unavailable { reason, .. } | PostError::Rejected(reason)) = error;
        if self.repeats.is_due() {
            let (signal, collector) = (self.signal.name(), &self.collector);
            let dropped_spans = self.losses.spans();
            tracing::warn!(
                signal,
                collector,
                error = reason,
                dropped_spans,
                "cannot export telemetry"
            );
        }
    }

    /// A request was accepted; spans may have been dropped all the same.
    fn accepted(&mut self) {
        let before = self.dropped;
        self.dropped = self.losses.spans();
        if self.signal == Signal::Metrics || self.dropped == before {
            self.repeats.solved();
        } else if self.repeats.is_due() {
            let dropped_spans = self.dropped;
            tracing::warn!(
                dropped_spans,
                "spans were dropped: more ended than the collector accepts; sample them with OTEL_TRACES_SAMPLER"
            );
        }
    }
}
