//! Allocates services' cluster IPs and node ports.
//!
//! ```text
//!   service ─► IP families ─► clusterIP from 10.0.0.0/24 ─► a node port per port, if the type has them
//! ```

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    net::Ipv4Addr,
    ops::Range,
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    kinds::strategy::Allocation,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    schema::{FieldError, Problem},
    status::Status,
    storage::{Entry, Key, Revision, Storage, TableName},
    verbs::WriteOptions,
    webhook::Purpose,
};

/// The addresses that services may request: `10.0.0.0/24`, without the first and the last.
const ADDRESSES: Range<u8> = 1..255;
/// Addresses for services that request none. When they are used up, [`STATIC_RANGE`] is used, which excludes `10.0.0.1`,
/// the API server's own.
const DYNAMIC_RANGE: Range<u8> = 17..255;
const STATIC_RANGE: Range<u8> = 2..17;
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// The addresses and ports in use by other services.
#[derive(Debug, Default)]
struct Allocations {
    addresses: HashSet<String>,
    ports: HashSet<u16>,
    /// The ports of the current service so far: it may use a port once per protocol.
    own_ports: HashSet<(String, u16)>,
    /// The free ports, sorted; computed on first use.
    free: Option<Vec<u16>>,
    /// For a dry run the real server returns the network's own address, and accepts any port.
    dry_run: bool,
}

/// The addresses and ports in use, kept up to date by the storage's events: a service is read once, not whenever another
/// one is written.
#[derive(Debug, Default)]
struct InUse {
    /// The revision up to which events are included; none before the first use.
    seen: Option<Revision>,
    /// Those services that have any.
    services: HashMap<Key, Held>,
    /// How many services have each; no entry is 0.
    addresses: HashMap<String, usize>,
    ports: HashMap<u16, usize>,
}

/// The addresses and ports of one service, each once.
#[derive(Debug, Default)]
struct Held {
    uid: String,
    addresses: HashSet<String>,
    ports: HashSet<u16>,
}

impl Held {
    fn of(service: &Object) -> Self {
        let null = Value::Null;
        let spec = service.fields().get("spec").unwrap_or(&null);
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
        let ports = spec["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| &port["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]);
        Self {
            uid: service.meta("uid").to_owned(),
            addresses: addresses
                .filter_map(Value::as_str)
                .filter(|address| *address != "None")
                .map(str::to_owned)
                .collect(),
            ports: ports
                .filter_map(Value::as_u64)
                .filter_map(|port| u16::try_from(port).ok())
                .collect(),
        }
    }
}

impl InUse {
    /// Includes what was written since the last call.
    fn catch_up(&mut self, storage: &dyn Storage, table: &TableName) {
        if let Some(seen) = self.seen
            && let Ok(events) = storage.events(table, None, seen, usize::MAX)
        {
            for event in events {
                self.set(&event.entry, !event.deleted);
                self.seen = Some(event.revision);
            }
            return;
        }
        // The first use, or the history does not reach back that far.
        let snapshot = storage
            .snapshot(table, None, None)
            .expect("the current revision is never compacted");
        *self = Self::default();
        for entry in snapshot.range(None, None) {
            self.set(entry, true);
        }
        self.seen = Some(snapshot.revision);
    }

    /// Replaces what is known about a service.
    fn set(&mut self, entry: &Entry, exists: bool) {
        if let Some(before) = self.services.remove(&entry.key) {
            for address in &before.addresses {
                release(&mut self.addresses, address);
            }
            for port in &before.ports {
                release(&mut self.ports, port);
            }
        }
        let Some(service) = exists.then(|| entry.object.decode().ok()).flatten() else {
            return;
        };
        let held = Held::of(&service);
        if held.addresses.is_empty() && held.ports.is_empty() {
            return;
        }
        for address in &held.addresses {
            *self.addresses.entry(address.clone()).or_default() += 1;
        }
        for port in &held.ports {
            *self.ports.entry(*port).or_default() += 1;
        }
        self.services.insert(entry.key.clone(), held);
    }

    /// What services other than `own` use: at most all addresses and ports of the ranges, however many services there are.
    fn of_others(&self, own: Option<&Object>) -> Allocations {
        let mut others = Allocations {
            addresses: self.addresses.keys().cloned().collect(),
            ports: self.ports.keys().copied().collect(),
            ..Allocations::default()
        };
        let own = own.and_then(|own| {
            let held = self.services.get(&Key::new(own.namespace(), own.name()))?;
            (held.uid == own.meta("uid")).then_some(held)
        });
        if let Some(own) = own {
            let only = |count: Option<&usize>| count == Some(&1);
            for address in own.addresses.iter().filter(|a| only(self.addresses.get(*a))) {
                others.addresses.remove(address);
            }
            for port in own.ports.iter().filter(|port| only(self.ports.get(port))) {
                others.ports.remove(port);
            }
        }
        others
    }
}

/// Counts one user less.
fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Allocations {
    /// Reserves a port for the current service; false if it is in use.
    fn reserve_port(&mut self, protocol: &str, port: u16) -> bool {
        if let Some(free) = &mut self.free
            && let Ok(index) = free.binary_search(&port)
        {
            free.remove(index);
        }
        !self.ports.contains(&port) && self.own_ports.insert((protocol.to_owned(), port))
    }

    /// The ports that no service has.
    fn free(&mut self) -> &[u16] {
        self.free.get_or_insert_with(|| {
            let own: HashSet<u16> = self.own_ports.iter().map(|(_, port)| *port).collect();
            let is_free = |port: &u16| !self.ports.contains(port) && !own.contains(port);
            NODE_PORTS.filter(is_free).collect()
        })
    }
}

/// Allocates the addresses and ports of services.
pub(crate) struct ServiceAllocator {
    store: Arc<ObjectStore>,
    /// Held from the allocation of a service's addresses and ports until the service is written.
    lock: parking_lot::Mutex<()>,
    in_use: parking_lot::Mutex<InUse>,
}

impl ServiceAllocator {
    pub(crate) fn new(store: Arc<ObjectStore>) -> Self {
        Self {
            store,
            lock: parking_lot::Mutex::new(()),
            in_use: parking_lot::Mutex::default(),
        }
    }

    /// Allocates a service's addresses and ports. They are in use only once it is written, so the guard must be held
    /// until then: allocations may not run concurrently.
    pub(crate) fn allocate(
        &self,
        resource: &Resource,
        object: &mut Object,
        old: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<Allocation<'_>, Status> {
        let guard = self.lock.lock();
        let mut allocations = {
            let mut in_use = self.in_use.lock();
            in_use.catch_up(&*self.store.storage, &resource.table);
            Allocations {
                dry_run: options.dry_run,
                ..in_use.of_others(old)
            }
        };
        let mut random = options
            .environment(&self.store.environment)
            .random(Purpose::Allocation);
        allocate_for(object, &mut allocations, &mut Choice::new(random.u64(..)))
            .map_err(|errors| Status::invalid(&resource.group, &resource.kind, object.name(), &errors))?;
        Ok(Some(guard))
    }
}

/// Chooses at random what a service gets. The verb that writes it may run again, while other services come and go: a choice
/// changes only if what was chosen is no longer free, so that webhooks need not be asked again.
struct Choice {
    seed: u64,
    /// How many choices were made.
    made: u64,
}

impl Choice {
    fn new(seed: u64) -> Self {
        Self { seed, made: 0 }
    }

    /// One of these numbers; `None` if there are none.
    fn of<T: Copy + Into<u64>>(&mut self, free: &[T]) -> Option<T> {
        self.made += 1;
        let place = |candidate: T| {
            let salt = (self.made << 32) | candidate.into();
            fastrand::Rng::with_seed(self.seed ^ salt).u64(..)
        };
        free.iter().copied().min_by_key(|candidate| place(*candidate))
    }
}

/// Allocates a service's missing addresses and ports.
fn allocate_for(
    service: &mut Object,
    allocations: &mut Allocations,
    choice: &mut Choice,
) -> Result<(), Vec<FieldError>> {
    let Some(spec) = service
        .fields_mut()
        .get_mut("spec")
        .filter(|spec| spec.is_object())
    else {
        return Ok(());
    };
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    set_ip_families(spec);
    allocate_address(spec, allocations, choice)?;
    let wants_ports =
        kind == "NodePort" || (kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false);
    allocate_ports(spec, wants_ports, allocations, choice)?;
    if kind == "LoadBalancer"
        && spec["externalTrafficPolicy"] == "Local"
        && spec["healthCheckNodePort"].is_null()
    {
        spec["healthCheckNodePort"] = free_port("TCP", allocations, choice).into();
    }
    Ok(())
}

fn set_ip_families(spec: &mut Value) {
    let headless = spec["clusterIP"] == "None";
    // A headless service without a selector may have endpoints of any family.
    let open = headless && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    let (policy, families) = if open {
        ("RequireDualStack", json!(["IPv4", "IPv6"]))
    } else {
        ("SingleStack", json!(["IPv4"]))
    };
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = policy.into();
    }
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = if spec["ipFamilyPolicy"] == "SingleStack" {
            json!(["IPv4"])
        } else {
            families
        };
    }
}

fn allocate_address(
    spec: &mut Value,
    allocations: &mut Allocations,
    choice: &mut Choice,
) -> Result<(), Vec<FieldError>> {
    let requested = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    if requested.is_empty() && allocations.dry_run {
        spec["clusterIP"] = "10.0.0.0".into();
    } else if requested.is_empty() {
        let address_of = |last: u8| Ipv4Addr::new(10, 0, 0, last).to_string();
        let mut choose = |range: Range<u8>| {
            let is_free = |last: &u8| !allocations.addresses.contains(&address_of(*last));
            choice.of(&range.filter(is_free).collect::<Vec<_>>())
        };
        let Some(last) = choose(DYNAMIC_RANGE).or_else(|| choose(STATIC_RANGE)) else {
            let problem = Problem::Invalid(json!([]), "failed to allocate a serviceIP: range is full".into());
            return Err(vec![FieldError::new("spec.clusterIPs", problem)]);
        };
        spec["clusterIP"] = address_of(last).into();
    } else if requested != "None" {
        let parsed: Option<Ipv4Addr> = requested.parse().ok();
        let inside = parsed.is_some_and(|address| {
            let [a, b, c, last] = address.octets();
            [a, b, c] == [10, 0, 0] && ADDRESSES.contains(&last)
        });
        let why = if !inside && !allocations.dry_run {
            "the provided network does not match the current range".to_owned()
        } else if !inside {
            format!(
                "the provided IP ({requested}) is not in the valid range. The range of valid IPs is 10.0.0.0/24"
            )
        } else if allocations.addresses.contains(&requested) {
            "provided IP is already allocated".to_owned()
        } else {
            String::new()
        };
        if !why.is_empty() {
            let problem = Problem::Invalid(
                json!([requested]),
                format!("failed to allocate IP {requested}: {why}"),
            );
            return Err(vec![FieldError::new("spec.clusterIPs", problem)]);
        }
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
    Ok(())
}

fn allocate_ports(
    spec: &mut Value,
    wanted: bool,
    allocations: &mut Allocations,
    choice: &mut Choice,
) -> Result<(), Vec<FieldError>> {
    let mut errors = Vec::new();
    let ports = spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for (index, port) in ports.enumerate() {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(requested)
                if requested != 0 && !(allocations.dry_run && u16::try_from(requested).is_err()) =>
            {
                let inside = |requested: &u16| NODE_PORTS.contains(requested) || allocations.dry_run;
                let why = match u16::try_from(requested).ok().filter(inside) {
                    None => {
                        "provided port is not in the valid range. The range of valid ports is 30000-32767"
                    }
                    Some(requested) if allocations.reserve_port(&protocol, requested) => continue,
                    Some(_) => "provided port is already allocated",
                };
                let problem = Problem::Invalid(requested.into(), why.into());
                errors.push(FieldError::new(format!("spec.ports[{index}].nodePort"), problem));
            }
            None | Some(0) if wanted => {
                port["nodePort"] = free_port(&protocol, allocations, choice).into();
            }
            _ => {}
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// A random free port; if all 2768 are in use, the first.
fn free_port(protocol: &str, allocations: &mut Allocations, choice: &mut Choice) -> u16 {
    let port = choice.of(allocations.free()).unwrap_or(*NODE_PORTS.start());
    allocations.reserve_port(protocol, port);
    port
}

/// Sets `clusterIPs` from `clusterIP`, which is all that older clients set.
pub(super) fn set_cluster_ips(service: &mut Object) {
    let spec = service.fields_mut().get_mut("spec");
    if let Some(spec) = spec.filter(|spec| spec["clusterIPs"].is_null()) {
        match spec["clusterIP"].as_str() {
            Some(address) if !address.is_empty() => spec["clusterIPs"] = json!([address]),
            _ => {}
        }
    }
}

/// Keeps allocated fields of an updated service that the client left out, and drops those that its new type does not use.
pub(super) fn keep_allocated(service: &mut Object, old: &Object) {
    let null = Value::Null;
    let before = old.fields().get("spec").unwrap_or(&null).clone();
    let Some(spec) = service
        .fields_mut()
        .get_mut("spec")
        .filter(|spec| spec.is_object())
    else {
        return;
    };
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let had = before["type"].as_str().unwrap_or_default();
    if kind == "ExternalName" {
        for key in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            // Unchanged values are dropped; validation rejects changed ones.
            if spec[key] == before[key] {
                remove(spec, key);
            }
        }
    } else if had != "ExternalName" {
        if spec["clusterIP"].is_null() {
            spec["clusterIP"] = before["clusterIP"].clone();
            spec["clusterIPs"] = before["clusterIPs"].clone();
        } else if spec["clusterIPs"].is_null()
            || (spec["clusterIP"] != before["clusterIP"] && spec["clusterIPs"] == before["clusterIPs"])
        {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if spec[key].is_null() {
                spec[key] = before[key].clone();
            }
        }
    }
    let has_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    // Of several with one port and protocol, the first wins.
    let mut old_ports = HashMap::new();
    for port in before["ports"].as_array().into_iter().flatten() {
        old_ports
            .entry((&port["port"], &port["protocol"]))
            .or_insert(&port["nodePort"]);
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let known = old_ports
            .get(&(&port["port"], &port["protocol"]))
            .map(|known| (*known).clone());
        if !has_ports(&kind) {
            if has_ports(had) && known.is_some_and(|known| known == port["nodePort"]) {
                remove(port, "nodePort");
            }
        } else if has_ports(had)
            && port["nodePort"].is_null()
            && let Some(known) = known.filter(|known| !known.is_null())
        {
            port["nodePort"] = known;
        }
    }
    // Unchanged fields that only the old type uses are dropped.
    for (key, needs) in [
        (
            "externalTrafficPolicy",
            is_externally_reachable as fn(&Value) -> bool,
        ),
        ("allocateLoadBalancerNodePorts", is_load_balancer),
        ("loadBalancerClass", is_load_balancer),
        ("healthCheckNodePort", has_health_check_port),
    ] {
        if needs(&before) && !needs(spec) && spec[key] == before[key] {
            remove(spec, key);
        }
    }
    if has_health_check_port(spec) && spec["healthCheckNodePort"].is_null() {
        spec["healthCheckNodePort"] = before["healthCheckNodePort"].clone();
    }
}

fn is_load_balancer(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer"
}

fn has_health_check_port(spec: &Value) -> bool {
    is_load_balancer(spec) && spec["externalTrafficPolicy"] == "Local"
}

fn is_externally_reachable(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("NodePort" | "LoadBalancer") => true,
        Some("ClusterIP") => spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()),
        _ => false,
    }
}

fn remove(value: &mut Value, key: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(key);
    }
}
