//! Who owns whom, by UID, and what a change in it makes worth a look. Without I/O.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, PartialObjectMeta};
use windlass_cache::{Change, Deletion, ObjectKey, Stored, Uid};

use super::super::kinds::Kind;

/// The finalizers by which a deletion asks for its dependents' deletion first, or for their release.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// An object of any kind, of which only the metadata is read.
pub(super) type Object = PartialObjectMeta<DynamicObject>;

/// How long a dependent waits for its unknown owner to be told by the watch of the owner's kind, before the server is asked.
const LATE: Duration = Duration::from_millis(20);

/// How many of those that are known to be gone are remembered; a real collector remembers 500 too.
const REMEMBERED: usize = 500;

#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// Those that name an owner, under the owner's UID, whether or not the owner is known. No set is empty.
    dependents: HashMap<Uid, HashSet<Uid>>,
    absent: Absent,
}

/// An object that a watch told of, as it was last seen.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Arc<Kind>,
    pub(super) stored: Stored<Object>,
    pub(super) fate: Fate,
}

/// How far an object's deletion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    /// It is being deleted, and its dependents do not matter for that.
    Goes,
    /// It waits for its dependents' deletion.
    Foreground,
    /// It waits for its dependents' release.
    Orphans,
}

/// An object to look at, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) at: Uid,
    pub(super) after: Duration,
}

impl Look {
    fn now(at: Uid) -> Self {
        let after = Duration::ZERO;
        Self { at, after }
    }

    fn later(at: Uid) -> Self {
        Self { at, after: LATE }
    }
}

impl Node {
    pub(super) fn key(&self) -> &ObjectKey {
        self.stored.key()
    }

    pub(super) fn owners(&self) -> Vec<OwnerReference> {
        let object = self.stored.object().ok();
        object
            .and_then(|object| object.metadata.owner_references.clone())
            .unwrap_or_default()
    }

    /// Whether this is the object that a reference from this namespace means.
    fn is_meant(&self, reference: &OwnerReference, from: Option<&str>) -> bool {
        let resource = &self.kind.resource;
        let namespace = self.key().namespace();
        reference.api_version == resource.api_version
            && reference.kind == resource.kind
            && reference.name == self.key().name()
            && (namespace.is_none() || namespace == from)
    }
}

impl Graph {
    pub(super) fn node(&self, uid: Uid) -> Option<&Node> {
        self.nodes.get(&uid)
    }

    pub(super) fn dependents(&self, owner: Uid) -> impl Iterator<Item = Uid> {
        self.dependents.get(&owner).into_iter().flatten().copied()
    }

    /// Whether what a reference from this namespace means was seen to go. UIDs do not come back. A reference that names
    /// another version than the watch is not known to mean it, to a real collector neither.
    pub(super) fn is_absent(&self, reference: &OwnerReference, from: Option<&str>) -> bool {
        let gone = self.absent.nodes.get(&Uid::from(&*reference.uid));
        gone.is_some_and(|gone| gone.is_meant(reference, from))
    }

    /// Whether every owner of the object is known, is the one that its references mean, and stays.
    pub(super) fn is_safe(&self, node: &Node) -> bool {
        let owners = node.owners();
        owners.iter().all(|owner| {
            self.nodes.get(&Uid::from(&*owner.uid)).is_some_and(|known| {
                known.fate != Fate::Foreground && known.is_meant(owner, node.key().namespace())
            })
        })
    }

    /// Takes in what a watch told, and says what to look at because of it.
    pub(super) fn observe(&mut self, kind: &Arc<Kind>, change: &Change<Object>) -> Vec<Look> {
        let mut looks = Vec::new();
        match change {
            Change::Applied { old, new, .. } => {
                if change.recreated()
                    && let Some(old) = old
                {
                    self.remove(old.meta().uid(), Some(Deletion::Seen), &mut looks);
                }
                self.insert(kind, new, &mut looks);
            }
            Change::Deleted { last, how, .. } => self.remove(last.meta().uid(), Some(*how), &mut looks),
        }
        looks
    }

    fn insert(&mut self, kind: &Arc<Kind>, stored: &Stored<Object>, looks: &mut Vec<Look>) {
        let uid = stored.meta().uid();
        let node = Node {
            kind: Arc::clone(kind),
            stored: stored.clone(),
            fate: fate(stored),
        };
        let fate = node.fate;
        let known = self.nodes.insert(uid, node);
        let before = known
            .as_ref()
            .map_or(&[][..], |known| known.stored.meta().owners());
        let owners = stored.meta().owners();
        for lost in before.iter().filter(|owner| !owners.contains(owner)) {
            self.separate(*lost, uid);
        }
        let mut doubtful = false;
        for gained in owners.iter().filter(|owner| !before.contains(owner)) {
            self.dependents.entry(*gained).or_default().insert(uid);
            doubtful = true;
        }
        if doubtful && !self.nodes.get(&uid).is_some_and(|node| self.is_safe(node)) {
            looks.push(Look::later(uid));
        }
        let waiting = before.iter().chain(owners).filter(|owner| self.waits(**owner));
        looks.extend(waiting.map(|owner| Look::now(*owner)));
        if known.is_none() {
            // They came before their owner, and may not mean this object.
            looks.extend(self.dependents(uid).map(Look::later));
        }
        if known.is_none_or(|known| known.fate != fate) {
            match fate {
                Fate::Foreground => {
                    looks.extend(self.dependents(uid).map(Look::now));
                    looks.push(Look::now(uid));
                }
                Fate::Orphans => looks.push(Look::now(uid)),
                Fate::Lives | Fate::Goes => {}
            }
        }
    }

    /// The object is gone, as a watch told or (`None`) as the server said when it was asked.
    fn remove(&mut self, uid: Uid, how: Option<Deletion>, looks: &mut Vec<Look>) {
        let Some(node) = self.nodes.remove(&uid) else {
            return;
        };
        for owner in node.stored.meta().owners() {
            self.separate(*owner, uid);
            if self.waits(*owner) {
                looks.push(Look::now(*owner));
            }
        }
        // What was merely missing from a list may be of a kind that is not served for a while.
        if how != Some(Deletion::Inferred) && self.dependents.contains_key(&uid) {
            self.absent.insert(uid, node);
        }
        looks.extend(self.dependents(uid).map(Look::now));
    }

    /// The server said that the object is not there any more.
    pub(super) fn lost(&mut self, uid: Uid) -> Vec<Look> {
        let mut looks = Vec::new();
        self.remove(uid, None, &mut looks);
        looks
    }

    /// Forgets the objects of a kind, of which another watch is going to tell; their dependents are to be looked at should
    /// it not.
    pub(super) fn forget(&mut self, kind: &Kind) -> Vec<Look> {
        let gone: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| *node.kind == *kind)
            .map(|(uid, _)| *uid)
            .collect();
        // Before any of them goes: they may depend on one another.
        let looks = gone
            .iter()
            .flat_map(|uid| self.dependents(*uid).map(Look::later))
            .collect();
        for uid in gone {
            if let Some(node) = self.nodes.remove(&uid) {
                for owner in node.stored.meta().owners() {
                    self.separate(*owner, uid);
                }
            }
        }
        looks
    }

    fn separate(&mut self, owner: Uid, dependent: Uid) {
        if let Some(dependents) = self.dependents.get_mut(&owner) {
            dependents.remove(&dependent);
            if dependents.is_empty() {
                self.dependents.remove(&owner);
            }
        }
    }

    fn waits(&self, uid: Uid) -> bool {
        self.nodes
            .get(&uid)
            .is_some_and(|node| node.fate == Fate::Foreground)
    }
}

fn fate(stored: &Stored<Object>) -> Fate {
    if !stored.meta().is_deleting() {
        return Fate::Lives;
    }
    let object = stored.object().ok();
    let finalizers = object
        .as_ref()
        .and_then(|object| object.metadata.finalizers.as_deref())
        .unwrap_or_default();
    let has = |finalizer: &str| finalizers.iter().any(|one| one == finalizer);
    if has(ORPHAN) {
        Fate::Orphans
    } else if has(FOREGROUND) {
        Fate::Foreground
    } else {
        Fate::Goes
    }
}

/// The last of those that are known to be gone.
#[derive(Default)]
struct Absent {
    nodes: HashMap<Uid, Node>,
    /// In the order in which they went; the same ones as in `nodes`.
    order: VecDeque<Uid>,
}

impl Absent {
    fn insert(&mut self, uid: Uid, node: Node) {
        if self.nodes.insert(uid, node).is_none() {
            self.order.push_back(uid);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client,
        api::{DeleteParams, PostParams},
        core::ApiResource,
    };
    use windlass_apiserver::Server;
    use windlass_cache::{Cache, Selection, Subscription};

    use super::{super::super::kinds::Served, *};

    /// Config maps of a server, and a graph of what is seen of them.
    struct Trial {
        api: Api<ConfigMap>,
        kind: Arc<Kind>,
        changes: Subscription<Object>,
        graph: Graph,
    }

    impl Trial {
        async fn new() -> Self {
            let client = Client::new(Server::builder().build(), "default");
            let served = Served::discover(&client).await;
            let served = served.expect("the server tells what it serves");
            let kind = served.find("v1", "ConfigMap").expect("it serves config maps");
            let selection = Selection::all().namespace("default");
            let cache = Cache::<Object>::start_dynamic(
                client.clone(),
                &ApiResource::erase::<ConfigMap>(&()),
                &selection,
            );
            Self {
                api: Api::default_namespaced(client),
                kind: Arc::clone(kind),
                changes: cache.subscribe(),
                graph: Graph::default(),
            }
        }

        /// Creates a config map with owners, by name and UID.
        async fn create(&self, name: &str, owners: &[(&str, &str)]) -> String {
            let owners: Vec<_> = owners
                .iter()
                .map(|(name, uid)| {
                    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
                })
                .collect();
            let object = serde_json::json!({"metadata": {"name": name, "ownerReferences": owners}});
            let object = serde_json::from_value(object).expect("a config map");
            let created = self.api.create(&PostParams::default(), &object).await;
            created
                .expect("it is created")
                .metadata
                .uid
                .expect("it has a uid")
        }

        async fn delete(&self, name: &str, options: &DeleteParams) {
            let deleted = self.api.delete(name, options).await;
            deleted.expect("it is deleted");
        }

        /// What the next change makes worth a look.
        async fn observe(&mut self) -> Vec<Look> {
            let change = self.changes.next().await.expect("something changed");
            self.graph.observe(&self.kind, &change)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dependent_is_looked_at_when_its_owner_goes_or_was_never_seen() {
        let mut trial = Trial::new().await;
        let owner = trial.create("a", &[]).await;
        assert_eq!(trial.observe().await, []);
        let child = trial.create("a-1", &[("a", &owner)]).await;
        assert_eq!(trial.observe().await, [], "its owner is known");
        let child = Uid::from(&*child);
        trial.delete("a", &DeleteParams::default()).await;
        assert_eq!(trial.observe().await, [Look::now(child)]);
        let references = trial.graph.node(child).expect("it is known").owners();
        assert!(trial.graph.is_absent(&references[0], Some("default")));
        assert!(!trial.graph.is_absent(&references[0], Some("elsewhere")));

        let stranger = trial
            .create("b-1", &[("b", "11111111-2222-4333-8444-555555555555")])
            .await;
        assert_eq!(trial.observe().await, [Look::later(Uid::from(&*stranger))]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_waits_is_looked_at_with_every_change_of_its_dependents() {
        let mut trial = Trial::new().await;
        let owner = trial.create("a", &[]).await;
        let child = trial.create("a-1", &[("a", &owner)]).await;
        let (owner, child) = (Uid::from(&*owner), Uid::from(&*child));
        trial.observe().await;
        trial.observe().await;
        trial.delete("a", &DeleteParams::foreground()).await;
        assert_eq!(trial.observe().await, [Look::now(child), Look::now(owner)]);
        assert_eq!(
            trial.graph.node(owner).map(|node| node.fate),
            Some(Fate::Foreground)
        );
        trial.delete("a-1", &DeleteParams::default()).await;
        assert_eq!(trial.observe().await, [Look::now(owner)]);
        assert_eq!(trial.graph.dependents(owner).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn dependents_of_what_is_forgotten_are_looked_at_should_it_not_come_back() {
        let mut trial = Trial::new().await;
        let owner = trial.create("a", &[]).await;
        let child = trial.create("a-1", &[("a", &owner)]).await;
        trial.observe().await;
        trial.observe().await;
        let kind = Arc::clone(&trial.kind);
        let looks = trial.graph.forget(&kind);
        assert_eq!(looks, [Look::later(Uid::from(&*child))]);
        assert!(trial.graph.node(Uid::from(&*owner)).is_none());
    }
}
