//! From what was seen to what is told: redacted, compared, and only what is wanted.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use windlass::{
    cache::{Deletion, ObjectKey, Stored, Undecodable},
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
    memory::Step,
    notice::{FieldChange, Notice, What},
    redact::{self, Masked, Redactor},
};

/// What is wanted of what happens, for all kinds.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Which things that happen. Default: all.
    pub events: Vec<What>,
    /// Which of them. Default: all.
    pub filter: Option<Filter>,
    /// Whether changes of heartbeats and versions alone are told. Default: no.
    pub heartbeats: bool,
    /// Tells the time of each notice. Default: the system's.
    pub clock: Clock,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            events: What::ALL.to_vec(),
            filter: None,
            heartbeats: false,
            clock: Clock::system(),
        }
    }
}

/// Makes notices of one kind.
pub(crate) struct Teller {
    kind: Kind,
    /// The kind as its objects say it, where it was not installed when it was asked for.
    named: OnceLock<Arc<ApiResource>>,
    wishes: Arc<Wishes>,
    redactor: Arc<Redactor>,
    figures: Figures,
}

/// What became of what was seen, by [`What`].
#[derive(Default)]
struct Figures {
    told: [AtomicU64; What::ALL.len()],
    /// Not wanted.
    hidden: [AtomicU64; What::ALL.len()],
}

/// What becomes of one step.
pub(crate) enum Verdict {
    /// It is told.
    Tell(Arc<Notice>),
    /// It is not wanted.
    Hide,
}

impl Teller {
    pub(crate) fn new(kind: Kind, wishes: &Arc<Wishes>, redactor: &Arc<Redactor>) -> Self {
        Self {
            kind,
            named: OnceLock::new(),
            wishes: Arc::clone(wishes),
            redactor: Arc::clone(redactor),
            figures: Figures::default(),
        }
    }

    /// Whether a step is told, and how. What was there at the start is, whether or not that is wanted: who listens may know
    /// better what has happened to it since, and asks [`wants`](Self::wants).
    pub(crate) fn judge(&self, key: &ObjectKey, step: &Step<DynamicObject>) -> Result<Verdict, Undecodable> {
        let (notice, old) = match step {
            Step::Synced(new) => return Ok(Verdict::Tell(Arc::new(self.synced(new)?))),
            Step::Added(new) => (self.notice(What::Added, self.masked(new)?, new), None),
            Step::Deleted { last, how, .. } => {
                let mut notice = self.notice(What::Deleted, self.masked(last)?, last);
                notice.inferred = *how == Deletion::Inferred;
                (notice, None)
            }
            Step::Updated { old, new } => {
                let (before, after) = (self.masked(old)?, self.masked(new)?);
                let changes = diff(&before, &after, self.wishes.heartbeats);
                if changes.is_empty() && !self.wishes.heartbeats {
                    self.figures.hidden(What::Updated);
                    return Ok(Verdict::Hide);
                }
                let mut notice = self.notice(What::Updated, after, new);
                notice.changes = changes
                    .into_iter()
                    .map(redact::told)
                    .collect::<Vec<FieldChange>>();
                (notice, Some(before.told()))
            }
            Step::Missing => (self.missing(key), None),
        };
        Ok(if self.is_wanted(&notice, old.as_ref()) {
            self.figures.told(notice.what);
            Verdict::Tell(Arc::new(notice))
        } else {
            self.figures.hidden(notice.what);
            Verdict::Hide
        })
    }

    /// An object that is there.
    pub(crate) fn synced(&self, object: &Stored<DynamicObject>) -> Result<Notice, Undecodable> {
        Ok(self.notice(What::Synced, self.masked(object)?, object))
    }

    /// Whether it is to be told, of what follows from what was known before.
    pub(crate) fn wants(&self, notice: &Notice) -> bool {
        let wanted = self.is_wanted(notice, None);
        if wanted {
            self.figures.told(notice.what);
        } else {
            self.figures.hidden(notice.what);
        }
        wanted
    }

    fn is_wanted(&self, notice: &Notice, old: Option<&Value>) -> bool {
        let Wishes { events, filter, .. } = &*self.wishes;
        events.contains(&notice.what) && filter.as_ref().is_none_or(|filter| filter.wants(notice, old))
    }

    /// Nothing of an object is looked at before this.
    fn masked(&self, object: &Stored<DynamicObject>) -> Result<Masked, Undecodable> {
        let object = object.object()?;
        let value = to_value(&*object).expect("what was read from JSON can be written as such");
        Ok(self.redactor.mask(value))
    }

    fn notice(&self, what: What, object: Masked, stored: &Stored<DynamicObject>) -> Notice {
        let object = object.told();
        let text = |field: &str| Some(object.get("metadata")?.get(field)?.as_str()?.to_owned());
        Notice {
            what,
            inferred: false,
            kind: self.kind(&object),
            key: stored.key().clone(),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            time: self.wishes.clock.now(),
            object: Some(Arc::new(object)),
            changes: Vec::new(),
        }
    }

    fn missing(&self, key: &ObjectKey) -> Notice {
        Notice {
            what: What::Deleted,
            inferred: true,
            kind: self.kind(&Value::Null),
            key: key.clone(),
            uid: None,
            resource_version: None,
            time: self.wishes.clock.now(),
            object: None,
            changes: Vec::new(),
        }
    }

    fn kind(&self, object: &Value) -> Arc<ApiResource> {
        if let Some(named) = self.named.get() {
            return Arc::clone(named);
        }
        let mut resource = self.kind.resource.clone();
        let Some(kind) = object.get("kind").and_then(Value::as_str) else {
            return Arc::new(resource);
        };
        kind.clone_into(&mut resource.kind);
        Arc::clone(self.named.get_or_init(|| Arc::new(resource)))
    }

    pub(crate) fn resource(&self) -> &ApiResource {
        &self.kind.resource
    }
}

impl Figures {
    fn told(&self, what: What) {
        self.told[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn hidden(&self, what: What) {
        self.hidden[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Shows what was told and what was not. Once for all kinds.
pub(crate) fn show(metrics: &Metrics, wishes: &Arc<Wishes>, tellers: &[Arc<Teller>]) {
    type Count = fn(&Figures) -> &[AtomicU64; What::ALL.len()];
    let families: [(&str, &str, Count); 2] = [
        ("podwatch_notices", "What happened and is told", |figures| {
            &figures.told
        }),
        (
            "podwatch_hidden",
            "What happened and is not told, because nobody asked for it",
            |figures| &figures.hidden,
        ),
    ];
    for (name, help, count) in families {
        let tellers = tellers.to_vec();
        metrics.read_counter(name, help, move || {
            let readings = tellers.iter().flat_map(|teller| {
                What::ALL.into_iter().map(move |what| {
                    let number = count(&teller.figures)[what as usize].load(Ordering::Relaxed);
                    Reading::new(number)
                        .label("kind", teller.resource().kind.clone())
                        .label("what", what.name())
                })
            });
            readings.collect::<Vec<_>>()
        });
    }
    let wishes = Arc::clone(wishes);
    metrics.read_counter(
        "podwatch_filter_failures",
        "Objects on which the filter failed; they are told",
        move || [Reading::new(wishes.filter.as_ref().map_or(0, Filter::failures))],
    );
}
