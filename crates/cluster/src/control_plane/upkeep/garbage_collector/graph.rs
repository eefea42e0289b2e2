//! The graph of owners and dependents by UID, and which objects a change requires to process. No I/O.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, PartialObjectMeta};
use windlass_cache::{CachedObject, Change, Deletion, ObjectKey, Uid};

use super::super::kinds::Kind;

/// The finalizers of foreground and orphaning deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// The metadata of an object of any kind.
pub(super) type Object = PartialObjectMeta<DynamicObject>;

/// How long to wait for the watch of an unknown owner's kind to deliver the owner, before asking the server.
const UNKNOWN_OWNER_DELAY: Duration = Duration::from_millis(20);

/// How many deleted objects are remembered, as in Kubernetes.
const MAX_ABSENT: usize = 500;

#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// Dependents by the UID of their owner, whether or not the owner is known. No set is empty.
    dependents: HashMap<Uid, HashSet<Uid>>,
    absent: AbsentObjects,
}

/// An object as last delivered by a watch.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Arc<Kind>,
    pub(super) stored: CachedObject<Object>,
    pub(super) deletion: DeletionState,
}

/// The deletion state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionState {
    Alive,
    /// Being deleted, independent of its dependents.
    Deleting,
    /// In foreground deletion: waits for the deletion of its dependents.
    Foreground,
    /// In orphaning deletion: waits for the removal of its dependents' owner references.
    Orphaning,
}

/// An object to process, and after which delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessRequest {
    pub(super) uid: Uid,
    pub(super) after: Duration,
}

impl ProcessRequest {
    fn immediate(uid: Uid) -> Self {
        let after = Duration::ZERO;
        Self { uid, after }
    }

    fn delayed(uid: Uid) -> Self {
        Self {
            uid,
            after: UNKNOWN_OWNER_DELAY,
        }
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

    /// Whether a reference from an object in namespace `from` refers to this object, ignoring the UID.
    fn matches_reference(&self, reference: &OwnerReference, from: Option<&str>) -> bool {
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

    /// Whether the deletion of the referenced object was observed; UIDs are never reused. As in Kubernetes, a reference with
    /// another API version than the watch does not match.
    pub(super) fn is_absent(&self, reference: &OwnerReference, from: Option<&str>) -> bool {
        let gone = self.absent.nodes.get(&Uid::from(&*reference.uid));
        gone.is_some_and(|gone| gone.matches_reference(reference, from))
    }

    /// Whether every owner of the object is known, matches its reference, and is not in foreground deletion.
    pub(super) fn has_all_owners(&self, node: &Node) -> bool {
        let owners = node.owners();
        owners.iter().all(|owner| {
            self.nodes.get(&Uid::from(&*owner.uid)).is_some_and(|known| {
                known.deletion != DeletionState::Foreground
                    && known.matches_reference(owner, node.key().namespace())
            })
        })
    }

    /// Applies a watch event, and returns the objects to process because of it.
    pub(super) fn observe(&mut self, kind: &Arc<Kind>, change: &Change<Object>) -> Vec<ProcessRequest> {
        let mut requests = Vec::new();
        match change {
            Change::Applied { old, new, .. } => {
                if change.is_recreated()
                    && let Some(old) = old
                {
                    self.remove(old.meta().uid(), Some(Deletion::Observed), &mut requests);
                }
                self.insert(kind, new, &mut requests);
            }
            Change::Deleted { last, deletion, .. } => {
                self.remove(last.meta().uid(), Some(*deletion), &mut requests);
            }
        }
        requests
    }

    fn insert(
        &mut self,
        kind: &Arc<Kind>,
        stored: &CachedObject<Object>,
        requests: &mut Vec<ProcessRequest>,
    ) {
        let uid = stored.meta().uid();
        let node = Node {
            kind: Arc::clone(kind),
            stored: stored.clone(),
            deletion: deletion_state(stored),
        };
        let state = node.deletion;
        let known = self.nodes.insert(uid, node);
        let before = known
            .as_ref()
            .map_or(&[][..], |known| known.stored.meta().owners());
        let owners = stored.meta().owners();
        for lost in before.iter().filter(|owner| !owners.contains(owner)) {
            self.remove_edge(*lost, uid);
        }
        let mut doubtful = false;
        for gained in owners.iter().filter(|owner| !before.contains(owner)) {
            self.dependents.entry(*gained).or_default().insert(uid);
            doubtful = true;
        }
        if doubtful && !self.nodes.get(&uid).is_some_and(|node| self.has_all_owners(node)) {
            requests.push(ProcessRequest::delayed(uid));
        }
        let waiting = before
            .iter()
            .chain(owners)
            .filter(|owner| self.is_in_foreground_deletion(**owner));
        requests.extend(waiting.map(|owner| ProcessRequest::immediate(*owner)));
        if known.is_none() {
            // They were observed before their owner, and may refer to another object.
            requests.extend(self.dependents(uid).map(ProcessRequest::delayed));
        }
        if known.is_none_or(|known| known.deletion != state) {
            match state {
                DeletionState::Foreground => {
                    requests.extend(self.dependents(uid).map(ProcessRequest::immediate));
                    requests.push(ProcessRequest::immediate(uid));
                }
                DeletionState::Orphaning => requests.push(ProcessRequest::immediate(uid)),
                DeletionState::Alive | DeletionState::Deleting => {}
            }
        }
    }

    /// Removes an object that was deleted, according to a watch or (`None`) to a get request.
    fn remove(&mut self, uid: Uid, how: Option<Deletion>, requests: &mut Vec<ProcessRequest>) {
        let Some(node) = self.nodes.remove(&uid) else {
            return;
        };
        for owner in node.stored.meta().owners() {
            self.remove_edge(*owner, uid);
            if self.is_in_foreground_deletion(*owner) {
                requests.push(ProcessRequest::immediate(*owner));
            }
        }
        // An object that was merely missing in a list may be of a kind that is temporarily not served.
        if how != Some(Deletion::Inferred) && self.dependents.contains_key(&uid) {
            self.absent.insert(uid, node);
        }
        requests.extend(self.dependents(uid).map(ProcessRequest::immediate));
    }

    /// Removes an object that the server reported as not found.
    pub(super) fn remove_not_found(&mut self, uid: Uid) -> Vec<ProcessRequest> {
        let mut requests = Vec::new();
        self.remove(uid, None, &mut requests);
        requests
    }

    /// Removes the objects of a kind whose watch is replaced. Returns their dependents, in case the new watch does not
    /// deliver them again.
    pub(super) fn remove_kind(&mut self, kind: &Kind) -> Vec<ProcessRequest> {
        let gone: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| *node.kind == *kind)
            .map(|(uid, _)| *uid)
            .collect();
        // Before removing any: they may depend on each other.
        let requests = gone
            .iter()
            .flat_map(|uid| self.dependents(*uid).map(ProcessRequest::delayed))
            .collect();
        for uid in gone {
            if let Some(node) = self.nodes.remove(&uid) {
                for owner in node.stored.meta().owners() {
                    self.remove_edge(*owner, uid);
                }
            }
        }
        requests
    }

    fn remove_edge(&mut self, owner: Uid, dependent: Uid) {
        if let Some(dependents) = self.dependents.get_mut(&owner) {
            dependents.remove(&dependent);
            if dependents.is_empty() {
                self.dependents.remove(&owner);
            }
        }
    }

    fn is_in_foreground_deletion(&self, uid: Uid) -> bool {
        self.nodes
            .get(&uid)
            .is_some_and(|node| node.deletion == DeletionState::Foreground)
    }
}

fn deletion_state(stored: &CachedObject<Object>) -> DeletionState {
    if !stored.meta().is_deleting() {
        return DeletionState::Alive;
    }
    let object = stored.object().ok();
    let finalizers = object
        .as_ref()
        .and_then(|object| object.metadata.finalizers.as_deref())
        .unwrap_or_default();
    let has = |finalizer: &str| finalizers.iter().any(|one| one == finalizer);
    if has(ORPHAN) {
        DeletionState::Orphaning
    } else if has(FOREGROUND) {
        DeletionState::Foreground
    } else {
        DeletionState::Deleting
    }
}

/// The most recently deleted objects that had dependents.
#[derive(Default)]
struct AbsentObjects {
    nodes: HashMap<Uid, Node>,
    /// The keys of `nodes` in deletion order.
    order: VecDeque<Uid>,
}

impl AbsentObjects {
    fn insert(&mut self, uid: Uid, node: Node) {
        if self.nodes.insert(uid, node).is_none() {
            self.order.push_back(uid);
        }
        if self.order.len() > MAX_ABSENT
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
    use windlass_cache::{Cache, Subscription, WatchScope};

    use super::{super::super::kinds::ServedKinds, *};

    /// A server with config maps, and a graph that observes them.
    struct TestGraph {
        api: Api<ConfigMap>,
        kind: Arc<Kind>,
        changes: Subscription<Object>,
        graph: Graph,
    }

    impl TestGraph {
        async fn new() -> Self {
            let client = Client::new(Server::builder().build(), "default");
            let served = ServedKinds::discover(&client).await;
            let served = served.expect("discovery works");
            let kind = served.find("v1", "ConfigMap").expect("config maps are served");
            let selection = WatchScope::all().namespace("default");
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

        /// Returns the objects to process after the next change.
        async fn observe(&mut self) -> Vec<ProcessRequest> {
            let change = self.changes.next().await.expect("something changed");
            self.graph.observe(&self.kind, &change)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dependent_is_processed_when_its_owner_is_deleted_or_unknown() {
        let mut trial = TestGraph::new().await;
        let owner = trial.create("a", &[]).await;
        assert_eq!(trial.observe().await, []);
        let child = trial.create("a-1", &[("a", &owner)]).await;
        assert_eq!(trial.observe().await, [], "its owner is known");
        let child = Uid::from(&*child);
        trial.delete("a", &DeleteParams::default()).await;
        assert_eq!(trial.observe().await, [ProcessRequest::immediate(child)]);
        let references = trial.graph.node(child).expect("it is known").owners();
        assert!(trial.graph.is_absent(&references[0], Some("default")));
        assert!(!trial.graph.is_absent(&references[0], Some("elsewhere")));

        let stranger = trial
            .create("b-1", &[("b", "11111111-2222-4333-8444-555555555555")])
            .await;
        assert_eq!(
            trial.observe().await,
            [ProcessRequest::delayed(Uid::from(&*stranger))]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn owner_in_foreground_deletion_is_processed_on_changes_of_dependents() {
        let mut trial = TestGraph::new().await;
        let owner = trial.create("a", &[]).await;
        let child = trial.create("a-1", &[("a", &owner)]).await;
        let (owner, child) = (Uid::from(&*owner), Uid::from(&*child));
        trial.observe().await;
        trial.observe().await;
        trial.delete("a", &DeleteParams::foreground()).await;
        assert_eq!(
            trial.observe().await,
            [ProcessRequest::immediate(child), ProcessRequest::immediate(owner)]
        );
        assert_eq!(
            trial.graph.node(owner).map(|node| node.deletion),
            Some(DeletionState::Foreground)
        );
        trial.delete("a-1", &DeleteParams::default()).await;
        assert_eq!(trial.observe().await, [ProcessRequest::immediate(owner)]);
        assert_eq!(trial.graph.dependents(owner).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn forgetting_a_kind_processes_the_dependents_later() {
        let mut trial = TestGraph::new().await;
        let owner = trial.create("a", &[]).await;
        let child = trial.create("a-1", &[("a", &owner)]).await;
        trial.observe().await;
        trial.observe().await;
        let kind = Arc::clone(&trial.kind);
        let requests = trial.graph.remove_kind(&kind);
        assert_eq!(requests, [ProcessRequest::delayed(Uid::from(&*child))]);
        assert!(trial.graph.node(Uid::from(&*owner)).is_none());
    }
}
