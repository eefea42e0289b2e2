//! What a Lease says about who leads, and how it is written down.
//!
//! The API's lease duration is a whole number of seconds. A lease with a fraction states the next greater number, so
//! that whoever reads only that waits long enough, and the exact duration in an annotation together with the renewal
//! that it belongs to. Another toolkit's holder keeps our annotation but renews at another time, so the annotation is
//! not believed for its lease.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};

/// `<milliseconds>ms@<renewTime>`.
const EXACT_DURATION: &str = "windlass.dev/lease-duration";

/// Who leads, since when, for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Empty when nobody holds the lease.
    pub(crate) holder: String,
    /// `None` if the holder stated none.
    pub(crate) duration: Option<Duration>,
    pub(crate) transitions: i32,
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
}

impl Record {
    pub(crate) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let stated = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let annotations = lease.metadata.annotations.as_ref();
        let exact = annotations
            .and_then(|annotations| annotations.get(EXACT_DURATION))
            .and_then(|text| exact_duration(text, spec.renew_time.as_ref()?.0))
            .filter(|exact| stated == Some(whole_seconds(*exact)));
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: exact.or(stated),
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
        }
    }

    /// Puts this record and these labels into a lease; everything else in it stays as it is.
    pub(crate) fn write_into(&self, lease: &mut Lease, labels: &BTreeMap<String, String>) {
        let meta = &mut lease.metadata;
        if !labels.is_empty() {
            let kept = meta.labels.get_or_insert_default();
            kept.extend(labels.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        match (self.duration, self.renewed) {
            (Some(duration), Some(renewed)) if whole_seconds(duration) != duration => {
                let text = format!("{}ms@{renewed}", duration.as_micros().div_ceil(1000));
                let annotations = meta.annotations.get_or_insert_default();
                annotations.insert(EXACT_DURATION.to_owned(), text);
            }
            _ => {
                if let Some(annotations) = &mut meta.annotations {
                    annotations.remove(EXACT_DURATION);
                }
            }
        }
        let seconds = self.duration.map(|duration| whole_seconds(duration).as_secs());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(self.transitions),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            ..lease.spec.take().unwrap_or_default()
        });
    }
}

/// The duration, rounded up.
fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(more))
}

/// What the annotation says, if it belongs to this renewal.
fn exact_duration(text: &str, renewed: Timestamp) -> Option<Duration> {
    let (duration, at) = text.split_once("ms@")?;
    let at: Timestamp = at.parse().ok()?;
    let milliseconds = duration.parse().ok().filter(|_| at == renewed)?;
    Some(Duration::from_millis(milliseconds)).filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn record() -> Record {
        Record {
            holder: "other".to_owned(),
            duration: Some(Duration::from_secs(15)),
            transitions: 4,
            acquired: Some(stamp(10)),
            renewed: Some(stamp(20)),
        }
    }

    /// 120: what is written is what is read; labels are merged, and a lease without labels gets none.
    #[test]
    fn a_record_survives_the_lease_and_labels_are_merged() {
        let labels = |labels: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let record = record();
        let mut lease = Lease::default();
        record.write_into(&mut lease, &BTreeMap::new());
        assert_eq!(lease.metadata.labels, None);
        assert_eq!(Record::of(&lease), record);
        lease.metadata.labels = Some(labels(&[("theirs", "1"), ("both", "1")]));
        record.write_into(&mut lease, &labels(&[("ours", "2"), ("both", "2")]));
        let merged = labels(&[("theirs", "1"), ("both", "2"), ("ours", "2")]);
        assert_eq!(lease.metadata.labels, Some(merged));
    }

    /// 193: the lease states a fraction of a second exactly for us, and rounded up for others.
    #[test]
    fn a_duration_with_a_fraction_is_exact_for_us_and_longer_for_others() {
        for (milliseconds, seconds) in [(300, 1), (1500, 2), (15_000, 15)] {
            let record = Record {
                duration: Some(Duration::from_millis(milliseconds)),
                ..record()
            };
            let mut lease = Lease::default();
            record.write_into(&mut lease, &BTreeMap::new());
            let stated = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
            assert_eq!(stated, Some(seconds));
            assert_eq!(Record::of(&lease), record);

            // A holder of another toolkit renews, and keeps the annotation that it does not know.
            let spec = lease.spec.as_mut().expect("written");
            spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(stamp(
                21,
            )));
            let rounded = Duration::from_secs(u64::try_from(seconds).expect("positive"));
            assert_eq!(Record::of(&lease).duration, Some(rounded));
        }
    }
}
