//! From a `tracing` span to the queue of the exporter.
//!
//! ```text
//!   tracing span ─► is_exported ─► tracing-opentelemetry ─► sampler ─► SpanQueue ─► mpsc channel ─► export
//!                   (what, level)                                      │ full: dropped and counted
//! ```
//!
//! The SDK's own batch processor is not used: it has a thread and an executor of its own, and does not tell what it drops.

use std::{sync::Arc, time::Duration};

use opentelemetry::{Context, KeyValue, Value, trace::Status};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    filter::{DynFilterFn, dynamic_filter_fn},
    layer,
    registry::LookupSpan,
};

use super::report::{DropReason, Losses};

/// Spans that wait to be sent: the SDK's default.
pub(super) const QUEUE_SIZE: usize = 2048;

/// The longest text in a span. An error may quote a whole response.
const MAX_TEXT_BYTES: usize = 4096;

/// Creates the queue of ended spans.
pub(super) fn queue(losses: &Arc<Losses>) -> (SpanQueue, mpsc::Receiver<SpanData>) {
    let (sender, receiver) = mpsc::channel(QUEUE_SIZE);
    let losses = Arc::clone(losses);
    (SpanQueue { sender, losses }, receiver)
}

/// The SDK's view of the queue. Never waits.
#[derive(Debug)]
pub(super) struct SpanQueue {
    sender: mpsc::Sender<SpanData>,
    losses: Arc<Losses>,
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        truncate(&mut span);
        let reason = match self.sender.try_send(span) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => DropReason::QueueFull,
            Err(TrySendError::Closed(_)) => DropReason::Stopped,
        };
        self.losses.count_spans(reason, 1);
    }

    /// The exporter flushes when it stops.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn truncate(span: &mut SpanData) {
    span.attributes.iter_mut().for_each(truncate_value);
    for event in &mut span.events.events {
        event.attributes.iter_mut().for_each(truncate_value);
    }
    if let Status::Error { description } = &mut span.status
        && description.len() > MAX_TEXT_BYTES
    {
        *description = shortened(description).into();
    }
}

fn truncate_value(attribute: &mut KeyValue) {
    if let Value::String(text) = &mut attribute.value
        && text.as_str().len() > MAX_TEXT_BYTES
    {
        *text = shortened(text.as_str()).into();
    }
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    format!("{}…", &text[..end])
}

/// Which spans and events of the process are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exported {
    Always,
    /// Only as a part of another span, such as a reconcile: otherwise each watch would be a trace that lasts for minutes.
    WithinSpan,
    Never,
}

fn exported(metadata: &Metadata<'_>) -> Exported {
    let is_kube = metadata.target().starts_with("kube_client::client");
    match *metadata.level() {
        // kube logs whole responses that it cannot decode, which may be Secrets, at `warn`.
        Level::WARN | Level::INFO if is_kube && metadata.is_event() => Exported::Never,
        Level::ERROR | Level::WARN | Level::INFO => Exported::Always,
        // kube's span of a request, with method, URL and status.
        Level::DEBUG if is_kube && metadata.is_span() => Exported::WithinSpan,
        _ => Exported::Never,
    }
}

type Enabled<S> = fn(&Metadata<'_>, &layer::Context<'_, S>) -> bool;
type CallsiteEnabled = fn(&'static Metadata<'static>) -> Interest;

/// The filter of the exporting layer.
pub(super) fn filter<S>() -> DynFilterFn<S, Enabled<S>, CallsiteEnabled>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let enabled: Enabled<S> = |metadata, ctx| match exported(metadata) {
        Exported::Always => true,
        Exported::WithinSpan => ctx.lookup_current().is_some(),
        Exported::Never => false,
    };
    let callsite: CallsiteEnabled = |metadata| match exported(metadata) {
        Exported::Always => Interest::always(),
        Exported::WithinSpan => Interest::sometimes(),
        Exported::Never => Interest::never(),
    };
    dynamic_filter_fn(enabled)
        .with_max_level_hint(LevelFilter::DEBUG)
        .with_callsite_filter(callsite)
}
