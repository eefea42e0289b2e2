//! Random histories: in the end the cache equals the server, and it never showed a state that did not exist.

use crate::model;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, RequestType, Server, config_map, key};
use proptest::prelude::*;
use windlass_cache::{Cache, CachedObject, Change, ObjectKey, Query, Settings, Subscription, WatchScope};

#[derive(Clone, Debug)]
enum HistoryStep {
    Put(u8),
    PutBroken(u8),
    Delete(u8),
    Compact,
    EndWatches,
    BreakWatches,
    Fail(RequestType, u16),
    ErrorFrame(u16),
    /// This many milliseconds pass.
    Pass(u64),
    /// The slow subscriber receives one change.
    SlowReceives,
}

fn any_step() -> impl Strategy<Value = HistoryStep> {
    let status = prop::sample::select(vec![404, 410, 429, 500, 503]);
    let on = prop::sample::select(vec![RequestType::List, RequestType::NextPage, RequestType::Watch]);
    prop_oneof![
        6 => (0..6_u8).prop_map(HistoryStep::Put),
        1 => (0..6_u8).prop_map(HistoryStep::PutBroken),
        3 => (0..6_u8).prop_map(HistoryStep::Delete),
        1 => Just(HistoryStep::Compact),
        2 => Just(HistoryStep::EndWatches),
        1 => Just(HistoryStep::BreakWatches),
        2 => (on, status.clone()).prop_map(|(on, status)| HistoryStep::Fail(on, status)),
        1 => status.prop_map(HistoryStep::ErrorFrame),
        4 => (0..5000_u64).prop_map(HistoryStep::Pass),
        2 => Just(HistoryStep::SlowReceives),
    ]
}

/// A subscriber's state, built from the delivered changes.
#[derive(Default)]
struct View {
    objects: BTreeMap<ObjectKey, CachedObject<ConfigMap>>,
    /// The versions of each object in the order of delivery.
    delivered_versions: HashMap<ObjectKey, Vec<u64>>,
}

impl View {
    fn apply(&mut self, change: &Change<ConfigMap>) {
        let key = change.key().clone();
        let before = self.objects.get(&key).map(version);
        let old_version = match change {
            // Deleted before it was delivered: `old` is the last state.
            Change::Deleted { old, last, .. } if before.is_none() => {
                assert_eq!(version(old), version(last), "{key} was never delivered");
                None
            }
            change => change.old().map(version),
        };
        assert_eq!(old_version, before, "the state before {key}");
        self.delivered_versions
            .entry(key.clone())
            .or_default()
            .push(version(change.latest()));
        match change {
            Change::Applied { new, .. } => drop(self.objects.insert(key, new.clone())),
            Change::Deleted { .. } => drop(self.objects.remove(&key)),
        }
    }

    async fn apply_all(&mut self, subscription: &mut Subscription<ConfigMap>) {
        while let Ok(change) = tokio::time::timeout(Duration::from_millis(1), subscription.next()).await {
            self.apply(&change.expect("the cache is open"));
        }
    }
}

fn version(object: &CachedObject<ConfigMap>) -> u64 {
    object.meta().resource_version()
}

async fn run_history(happenings: Vec<HistoryStep>, streaming: bool) {
    let server = Server::with(&[CONFIG_MAPS]);
    server.page_size(2);
    let mut settings = Settings::<ConfigMap>::compact();
    if !streaming {
        settings = settings.without_watch_list();
    }
    let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
    let (mut quick, mut slow) = (cache.subscribe(), cache.subscribe());
    let (mut quick_view, mut slow_view) = (View::default(), View::default());
    for happening in happenings {
        match happening {
            HistoryStep::Put(name) => server.put(CONFIG_MAPS, config_map(&name.to_string(), "")),
            HistoryStep::PutBroken(name) => {
                let mut object = config_map(&name.to_string(), "");
                object["data"] = 5.into();
                server.put(CONFIG_MAPS, object);
            }
            HistoryStep::Delete(name) => server.delete(CONFIG_MAPS, &key(&name.to_string())),
            HistoryStep::Compact => server.compact(),
            HistoryStep::EndWatches => server.end_watches(),
            HistoryStep::BreakWatches => server.break_watches(),
            HistoryStep::Fail(on, status) => server.fail_next(on, status),
            HistoryStep::ErrorFrame(code) => {
                server.send(
                    CONFIG_MAPS,
                    &format!(r#"{{"type":"ERROR","object":{{"code":{code},"reason":""}}}}"#),
                );
            }
            HistoryStep::Pass(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            HistoryStep::SlowReceives => {
                let taken = tokio::time::timeout(Duration::from_millis(1), slow.next()).await;
                taken
                    .ok()
                    .flatten()
                    .iter()
                    .for_each(|change| slow_view.apply(change));
            }
        }
        quick_view.apply_all(&mut quick).await;
    }
    // Replace undecodable objects, so that the two can be compared.
    for existing in server.content(CONFIG_MAPS).keys() {
        server.put(CONFIG_MAPS, config_map(existing.trim_start_matches("n/"), ""));
    }
    tokio::time::sleep(Duration::from_mins(30)).await;
    quick_view.apply_all(&mut quick).await;
    slow_view.apply_all(&mut slow).await;

    let lister = cache
        .synced(Duration::ZERO)
        .await
        .expect("synced after all failures");
    let stored = lister.list_cached(&Query::all());
    let stored: BTreeMap<_, _> = stored
        .iter()
        .map(|object| (object.key().to_string(), version(object).to_string()))
        .collect();
    assert_eq!(stored, server.content(CONFIG_MAPS), "the store at the end");
    let true_states = server.all_states(CONFIG_MAPS);
    for (name, view) in [("quick", &quick_view), ("slow", &slow_view)] {
        let folded: BTreeMap<_, _> = view
            .objects
            .iter()
            .map(|(key, object)| (key.to_string(), version(object).to_string()))
            .collect();
        assert_eq!(folded, stored, "the state of the {name} subscriber");
        for (key, versions) in &view.delivered_versions {
            // An inferred deletion repeats the last version; versions never go back.
            assert!(versions.is_sorted(), "{name} got versions {versions:?} of {key}");
            let unreal = versions
                .iter()
                .find(|version| !true_states.contains(&(key.to_string(), **version)));
            assert_eq!(unreal, None, "{name} got a state of {key} that never existed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cache_converges_to_the_server_state_in_any_history(happenings in prop::collection::vec(any_step(), 0..60), streaming: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run_history(happenings, streaming));
    }
}
