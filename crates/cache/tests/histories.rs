//! Whatever happens, in the end the cache equals the server, and on the way it showed no state that never was.

mod model;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, On, Server, config_map, key};
use proptest::prelude::*;
use windlass_cache::{Cache, Change, ObjectKey, Query, Selection, Settings, Stored, Subscription};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happening {
    Put(u8),
    PutBroken(u8),
    Delete(u8),
    Compact,
    EndWatches,
    BreakWatches,
    Fail(On, u16),
    ErrorFrame(u16),
    /// So many milliseconds pass.
    Pass(u64),
    /// The slow subscriber takes one change.
    SlowTakes,
}

fn happening() -> impl Strategy<Value = Happening> {
    let status = prop::sample::select(vec![404, 410, 429, 500, 503]);
    let on = prop::sample::select(vec![On::List, On::NextPage, On::Watch]);
    prop_oneof![
        6 => (0..6_u8).prop_map(Happening::Put),
        1 => (0..6_u8).prop_map(Happening::PutBroken),
        3 => (0..6_u8).prop_map(Happening::Delete),
        1 => Just(Happening::Compact),
        2 => Just(Happening::EndWatches),
        1 => Just(Happening::BreakWatches),
        2 => (on, status.clone()).prop_map(|(on, status)| Happening::Fail(on, status)),
        1 => status.prop_map(Happening::ErrorFrame),
        4 => (0..5000_u64).prop_map(Happening::Pass),
        2 => Just(Happening::SlowTakes),
    ]
}

/// What a subscriber believes, folded from the changes that it was told.
#[derive(Default)]
struct View {
    objects: BTreeMap<ObjectKey, Stored<ConfigMap>>,
    /// The versions of each object in the order in which they were seen.
    seen: HashMap<ObjectKey, Vec<u64>>,
}

impl View {
    fn take(&mut self, change: &Change<ConfigMap>) {
        let key = change.key().clone();
        let before = self.objects.get(&key).map(version);
        let told = match change {
            // It came and went before it was looked at: the state before is its last one.
            Change::Deleted { old, last, .. } if before.is_none() => {
                assert_eq!(version(old), version(last), "{key} was never seen");
                None
            }
            change => change.old().map(version),
        };
        assert_eq!(told, before, "the state before {key}");
        self.seen
            .entry(key.clone())
            .or_default()
            .push(version(change.stored()));
        match change {
            Change::Applied { new, .. } => drop(self.objects.insert(key, new.clone())),
            Change::Deleted { .. } => drop(self.objects.remove(&key)),
        }
    }

    async fn take_all(&mut self, subscription: &mut Subscription<ConfigMap>) {
        while let Ok(change) = tokio::time::timeout(Duration::from_millis(1), subscription.next()).await {
            self.take(&change.expect("the cache lives"));
        }
    }
}

fn version(object: &Stored<ConfigMap>) -> u64 {
    object.meta().resource_version()
}

async fn play(happenings: Vec<Happening>, streaming: bool) {
    let server = Server::with(&[CONFIG_MAPS]);
    server.page_size(2);
    let mut settings = Settings::<ConfigMap>::compact();
    if !streaming {
        settings = settings.listing();
    }
    let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
    let (mut quick, mut slow) = (cache.subscribe(), cache.subscribe());
    let (mut quick_view, mut slow_view) = (View::default(), View::default());
    for happening in happenings {
        match happening {
            Happening::Put(name) => server.put(CONFIG_MAPS, config_map(&name.to_string(), "")),
            Happening::PutBroken(name) => {
                let mut object = config_map(&name.to_string(), "");
                object["data"] = 5.into();
                server.put(CONFIG_MAPS, object);
            }
            Happening::Delete(name) => server.delete(CONFIG_MAPS, &key(&name.to_string())),
            Happening::Compact => server.compact(),
            Happening::EndWatches => server.end_watches(),
            Happening::BreakWatches => server.break_watches(),
            Happening::Fail(on, status) => server.fail(on, status),
            Happening::ErrorFrame(code) => {
                server.send(
                    CONFIG_MAPS,
                    &format!(r#"{{"type":"ERROR","object":{{"code":{code},"reason":""}}}}"#),
                );
            }
            Happening::Pass(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            Happening::SlowTakes => {
                let taken = tokio::time::timeout(Duration::from_millis(1), slow.next()).await;
                taken
                    .ok()
                    .flatten()
                    .iter()
                    .for_each(|change| slow_view.take(change));
            }
        }
        quick_view.take_all(&mut quick).await;
    }
    // What does not decode is mended, so that the two can be compared.
    for existing in server.content(CONFIG_MAPS).keys() {
        server.put(CONFIG_MAPS, config_map(existing.trim_start_matches("n/"), ""));
    }
    tokio::time::sleep(Duration::from_mins(30)).await;
    quick_view.take_all(&mut quick).await;
    slow_view.take_all(&mut slow).await;

    let lister = cache.synced(Duration::ZERO).await.expect("all failures are over");
    let stored = lister.list_stored(&Query::all());
    let stored: BTreeMap<_, _> = stored
        .iter()
        .map(|object| (object.key().to_string(), version(object).to_string()))
        .collect();
    assert_eq!(stored, server.content(CONFIG_MAPS), "the store at the end");
    let true_states = server.true_states(CONFIG_MAPS);
    for (name, view) in [("quick", &quick_view), ("slow", &slow_view)] {
        let folded: BTreeMap<_, _> = view
            .objects
            .iter()
            .map(|(key, object)| (key.to_string(), version(object).to_string()))
            .collect();
        assert_eq!(folded, stored, "what the {name} subscriber believes");
        for (key, versions) in &view.seen {
            // A deletion that is inferred repeats the last version; nothing ever goes back.
            assert!(versions.is_sorted(), "{name} saw {key} as {versions:?}");
            let unreal = versions
                .iter()
                .find(|version| !true_states.contains(&(key.to_string(), **version)));
            assert_eq!(unreal, None, "{name} saw a state of {key} that never was");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_ends_up_as_the_server_is(happenings in prop::collection::vec(happening(), 0..60), streaming: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(happenings, streaming));
    }
}
