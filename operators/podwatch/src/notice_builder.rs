//! Turns observed events into notices: redacts, compares and filters.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::{
    cache::{CachedObject, DecodeError, Deletion, ObjectKey},
    kube::core::{ApiResource, DynamicObject},
    runtime::{
        Clock,
        metrics::{Metrics, Reading},
    },
    serde_json::{Value, to_value},
};

use crate::{
    diff::diff,
    filter::Filter,
    kinds::Kind,
    notice::{EventType, FieldChange, Notice},
    redact::{self, Masked, Redactor},
    tracker::ObjectEvent,
};

/// Which events to report, for all kinds.
#[derive(Clone, Debug)]
pub struct NoticeOptions {
    /// The event types to report. Default: all.
    pub events: Vec<EventType>,
    /// A condition on the event and its object. Default: none.
    pub filter: Option<Filter>,
    /// Whether to report updates that change only heartbeats and versions. Default: no.
    pub heartbeats: bool,
    /// Whether to report every observed change, instead of the latest state of each object. At most [`MAX_PENDING_CHANGES`]
    /// of each kind wait; more are coalesced and counted. Set [`Limits::every_change`](crate::delivery::Limits::every_change)
    /// of the sinks too. Default: no.
    pub every_change: bool,
    /// The clock for the time of each notice. Default: the system's.
    pub clock: Clock,
}

/// How many changes of each kind may wait to be reported with [`NoticeOptions::every_change`]. Each holds its object.
pub const MAX_PENDING_CHANGES: usize = 10_000;

impl Default for NoticeOptions {
    fn default() -> Self {
        Self {
            events: EventType::ALL.to_vec(),
            filter: None,
            heartbeats: false,
            every_change: false,
            clock: Clock::system(),
        }
    }
}

/// Builds the notices of one kind.
pub(crate) struct NoticeBuilder {
    kind: Kind,
    /// The kind as named by its objects; it was guessed if its CRD was not installed at the start.
    observed_kind: OnceLock<Arc<ApiResource>>,
    options: Arc<NoticeOptions>,
    redactor: Arc<Redactor>,
    counts: NoticeCounts,
}

/// Counts of reported and suppressed events, by [`EventType`].
#[derive(Default)]
struct NoticeCounts {
    reported: [AtomicU64; EventType::ALL.len()],
    suppressed: [AtomicU64; EventType::ALL.len()],
    /// How many changes were coalesced before they became notices.
    coalesced: AtomicU64,
    coalesced_logged: Mutex<Option<Instant>>,
}

/// Whether to report an event.
pub(crate) enum Decision {
    /// Report it.
    Report(Arc<Notice>),
    /// Skip it: its type is not selected, or the filter does not match.
    Suppress,
}

impl NoticeBuilder {
    pub(crate) fn new(kind: Kind, options: &Arc<NoticeOptions>, redactor: &Arc<Redactor>) -> Self {
        Self {
            kind,
            observed_kind: OnceLock::new(),
            options: Arc::clone(options),
            redactor: Arc::clone(redactor),
            counts: NoticeCounts::default(),
        }
    }

    /// Decides whether to report an event, and builds its notice. `Synced` is always passed on: a sink with a journal may know
    /// it to be an addition or update, and calls [`accepts`](Self::accepts) then.
    pub(crate) fn decide(
        &self,
        key: &ObjectKey,
        step: &ObjectEvent<DynamicObject>,
        coalesced: u64,
    ) -> Result<Decision, DecodeError> {
        let (mut notice, old) = match step {
            ObjectEvent::Synced(new) => {
                let mut notice = self.synced(new)?;
                notice.coalesced = coalesced;
                return Ok(Decision::Report(Arc::new(notice)));
            }
            ObjectEvent::Added(new) => (self.notice(EventType::Added, self.masked(new)?, new), None),
            ObjectEvent::Deleted { last, how, .. } => {
                let mut notice = self.notice(EventType::Deleted, self.masked(last)?, last);
                notice.inferred = *how == Deletion::Inferred;
                (notice, None)
            }
            ObjectEvent::Updated { old, new } => {
                let (before, after) = (self.masked(old)?, self.masked(new)?);
                let changes = diff(&before, &after, self.options.heartbeats);
                if changes.is_empty() && !self.options.heartbeats {
                    self.counts.count_suppressed(EventType::Updated);
                    return Ok(Decision::Suppress);
                }
                let mut notice = self.notice(EventType::Updated, after, new);
                notice.changes = changes
                    .into_iter()
                    .map(redact::redact_change)
                    .collect::<Vec<FieldChange>>();
                (notice, Some(before.into_redacted()))
            }
            ObjectEvent::Missing => (self.missing(key), None),
        };
        notice.coalesced = coalesced;
        Ok(if self.matches(&notice, old.as_ref()) {
            self.counts.count_reported(notice.event);
            Decision::Report(Arc::new(notice))
        } else {
            self.counts.count_suppressed(notice.event);
            Decision::Suppress
        })
    }

    /// The notice of an existing object.
    pub(crate) fn synced(&self, object: &CachedObject<DynamicObject>) -> Result<Notice, DecodeError> {
        Ok(self.notice(EventType::Synced, self.masked(object)?, object))
    }

    /// Whether to report a notice that a sink inferred. Counts it.
    pub(crate) fn accepts(&self, notice: &Notice) -> bool {
        let wanted = self.matches(notice, None);
        if wanted {
            self.counts.count_reported(notice.event);
        } else {
            self.counts.count_suppressed(notice.event);
        }
        wanted
    }

    fn matches(&self, notice: &Notice, old: Option<&Value>) -> bool {
        let NoticeOptions { events, filter, .. } = &*self.options;
        events.contains(&notice.event) && filter.as_ref().is_none_or(|filter| filter.matches(notice, old))
    }

    /// Nothing else reads an object before it is masked.
    fn masked(&self, object: &CachedObject<DynamicObject>) -> Result<Masked, DecodeError> {
        let object = object.object()?;
        let value = to_value(&*object).expect("an object decoded from JSON encodes to JSON");
        Ok(self.redactor.mask(value))
    }

    fn notice(&self, event: EventType, object: Masked, stored: &CachedObject<DynamicObject>) -> Notice {
        let object = object.into_redacted();
        let text = |field: &str| Some(object.get("metadata")?.get(field)?.as_str()?.to_owned());
        Notice {
            event,
            inferred: false,
            kind: self.kind(&object),
            key: stored.key().clone(),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            time: self.options.clock.now(),
            object: Some(Arc::new(object)),
            changes: Vec::new(),
            coalesced: 0,
        }
    }

    fn missing(&self, key: &ObjectKey) -> Notice {
        Notice {
            event: EventType::Deleted,
            inferred: true,
            kind: self.kind(&Value::Null),
            key: key.clone(),
            uid: None,
            resource_version: None,
            time: self.options.clock.now(),
            object: None,
            changes: Vec::new(),
            coalesced: 0,
        }
    }

    fn kind(&self, object: &Value) -> Arc<ApiResource> {
        if let Some(named) = self.observed_kind.get() {
            return Arc::clone(named);
        }
        let mut resource = self.kind.resource.clone();
        let Some(kind) = object.get("kind").and_then(Value::as_str) else {
            return Arc::new(resource);
        };
        kind.clone_into(&mut resource.kind);
        Arc::clone(self.observed_kind.get_or_init(|| Arc::new(resource)))
    }

    /// Counts changes that were coalesced into a notice. If every change was asked for, says so in the log, at most once a minute.
    pub(crate) fn count_coalesced(&self, changes: u64) {
        if changes == 0 {
            return;
        }
        let total = self.counts.coalesced.fetch_add(changes, Ordering::Relaxed) + changes;
        if !self.options.every_change {
            return;
        }
        let mut logged = self.counts.coalesced_logged.lock();
        if logged.is_none_or(|logged| logged.elapsed() >= Duration::from_mins(1)) {
            *logged = Some(Instant::now());
            tracing::warn!(
                kind = self.kind.resource.kind,
                total,
                "changes were not reported on their own, because more than {MAX_PENDING_CHANGES} waited"
            );
        }
    }

    pub(crate) fn every_change(&self) -> bool {
        self.options.every_change
    }

    pub(crate) fn resource(&self) -> &ApiResource {
        &self.kind.resource
    }
}

impl NoticeCounts {
    fn count_reported(&self, what: EventType) {
        self.reported[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count_suppressed(&self, what: EventType) {
        self.suppressed[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Registers the metrics of all kinds. Call once.
pub(crate) fn register_metrics(
    metrics: &Metrics,
    options: &Arc<NoticeOptions>,
    builders: &[Arc<NoticeBuilder>],
) {
    type Count = fn(&NoticeCounts) -> &[AtomicU64; EventType::ALL.len()];
    let families: [(&str, &str, Count); 2] = [
        (
            "windlass_podwatch_notices",
            "Events that were reported",
            |stats| &stats.reported,
        ),
        (
            "windlass_podwatch_notices_suppressed",
            "Events that were not reported, because of --events, --filter or --heartbeats",
            |stats| &stats.suppressed,
        ),
    ];
    for (name, help, count) in families {
        let builders = builders.to_vec();
        metrics.read_counter(name, help, move || {
            let readings = builders.iter().flat_map(|builder| {
                EventType::ALL.into_iter().map(move |what| {
                    let number = count(&builder.counts)[what as usize].load(Ordering::Relaxed);
                    Reading::new(number)
                        .label("kind", builder.resource().kind.clone())
                        .label("event", what.name())
                })
            });
            readings.collect::<Vec<_>>()
        });
    }
    let builders = builders.to_vec();
    metrics.read_counter(
        "windlass_podwatch_changes_coalesced",
        "Observed changes without a notice of their own, because newer ones of the same object came before they were reported",
        move || {
            let reading = |builder: &Arc<NoticeBuilder>| {
                Reading::new(builder.counts.coalesced.load(Ordering::Relaxed))
                    .label("kind", builder.resource().kind.clone())
            };
            builders.iter().map(reading).collect::<Vec<_>>()
        },
    );
    let options = Arc::clone(options);
    metrics.read_counter(
        "windlass_podwatch_filter_failures",
        "Objects on which the filter failed; they are reported",
        move || [Reading::new(options.filter.as_ref().map_or(0, Filter::failures))],
    );
}
