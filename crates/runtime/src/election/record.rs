//! The leader election record of a Lease.
//!
//! The API's lease duration is in whole seconds. A duration with a fraction is rounded up, so that candidates of other
//! toolkits wait long enough, and the exact duration is in an annotation together with the renew time that it belongs to. A
//! holder of another toolkit keeps the annotation but changes the renew time, so the annotation is ignored then.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};

/// Annotation with the exact lease duration: `<milliseconds>ms@<renewTime>`.
const LEASE_DURATION_ANNOTATION: &str = "windlass.dev/lease-duration";

/// Holder, duration and times of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderElectionRecord {
    /// Empty if the lease has no holder.
    pub(crate) holder: String,
    /// `None` if the lease has no duration.
    pub(crate) duration: Option<Duration>,
    pub(crate) transitions: i32,
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
}

impl LeaderElectionRecord {
    pub(crate) fn from_lease(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let stated = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let annotations = lease.metadata.annotations.as_ref();
        let exact = annotations
            .and_then(|annotations| annotations.get(LEASE_DURATION_ANNOTATION))
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

    /// Writes this record and these labels into a lease; everything else is kept.
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
                annotations.insert(LEASE_DURATION_ANNOTATION.to_owned(), text);
            }
            _ => {
                if let Some(annotations) = &mut meta.annotations {
                    annotations.remove(LEASE_DURATION_ANNOTATION);
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

/// The duration rounded up to whole seconds.
fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(more))
}

/// The duration of the annotation, if it belongs to this renew time.
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

    fn record() -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder: "other".to_owned(),
            duration: Some(Duration::from_secs(15)),
            transitions: 4,
            acquired: Some(stamp(10)),
            renewed: Some(stamp(20)),
        }
    }

    /// A lease without labels gets none.
    #[test]
    fn record_round_trips_through_a_lease_and_labels_are_merged() {
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
        assert_eq!(LeaderElectionRecord::from_lease(&lease), record);
        lease.metadata.labels = Some(labels(&[("theirs", "1"), ("both", "1")]));
        record.write_into(&mut lease, &labels(&[("ours", "2"), ("both", "2")]));
        let merged = labels(&[("theirs", "1"), ("both", "2"), ("ours", "2")]);
        assert_eq!(lease.metadata.labels, Some(merged));
    }

    #[test]
    fn fractional_duration_is_exact_for_us_and_rounded_up_for_others() {
        for (milliseconds, seconds) in [(300, 1), (1500, 2), (15_000, 15)] {
            let record = LeaderElectionRecord {
                duration: Some(Duration::from_millis(milliseconds)),
                ..record()
            };
            let mut lease = Lease::default();
            record.write_into(&mut lease, &BTreeMap::new());
            let stated = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
            assert_eq!(stated, Some(seconds));
            assert_eq!(LeaderElectionRecord::from_lease(&lease), record);

            // A holder of another toolkit renews and keeps the unknown annotation.
            let spec = lease.spec.as_mut().expect("written");
            spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(stamp(
                21,
            )));
            let rounded = Duration::from_secs(u64::try_from(seconds).expect("positive"));
            assert_eq!(LeaderElectionRecord::from_lease(&lease).duration, Some(rounded));
        }
    }
}
