//! The addresses and ports that services are given.
//!
//! ```text
//!   service ─► families ─► clusterIP from 10.0.0.0/24 ─► a node port per port, where the type has them
//! ```

use std::{
    collections::{HashMap, HashSet},
    net::Ipv4Addr,
    ops::Range,
};

use serde_json::{Value, json};

use crate::{
    object::Object,
    registry::Resource,
    schema::{FieldError, Problem},
    status::Status,
    verbs::{Api, WriteOptions},
};

/// The addresses that services may ask for: `10.0.0.0/24`, without its first and last.
const ADDRESSES: Range<u8> = 1..255;
/// Those that are given to services that ask for none; the lower ones, but for `10.0.0.1`, which is the API server's
/// own, only when these are used up.
const GIVEN: Range<u8> = 17..255;
const RESERVED: Range<u8> = 2..17;
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// What other services have.
#[derive(Debug, Default)]
struct Allotment {
    addresses: HashSet<String>,
    ports: HashSet<u16>,
    /// What the service at hand has so far: it may use a port once for each protocol.
    own: HashSet<(String, u16)>,
    /// The free ports, in order, computed on first use.
    free: Option<Vec<u16>>,
    /// Nothing is going to be written: the real server then shows the network's own address, and takes any port.
    dry: bool,
}

impl Allotment {
    /// Notes what another service has.
    fn note(&mut self, service: &Object) {
        let Some(spec) = service.fields().get("spec") else {
            return;
        };
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
        self.addresses
            .extend(addresses.filter_map(Value::as_str).map(str::to_owned));
        let ports = spec["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| &port["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]);
        self.ports.extend(
            ports
                .filter_map(Value::as_u64)
                .filter_map(|port| u16::try_from(port).ok()),
        );
    }

    /// Takes a port for the service at hand; false if it is taken.
    fn take(&mut self, protocol: &str, port: u16) -> bool {
        if let Some(free) = &mut self.free
            && let Ok(place) = free.binary_search(&port)
        {
            free.remove(place);
        }
        !self.ports.contains(&port) && self.own.insert((protocol.to_owned(), port))
    }

    /// The ports that neither other services nor the one at hand have.
    fn free(&mut self) -> &[u16] {
        self.free.get_or_insert_with(|| {
            let own: HashSet<u16> = self.own.iter().map(|(_, port)| *port).collect();
            let is_free = |port: &u16| !self.ports.contains(port) && !own.contains(port);
            NODE_PORTS.filter(is_free).collect()
        })
    }
}

impl Api {
    /// Gives a service its addresses and ports. They are its own once it is written, so that no two services may look
    /// for theirs at the same time: the guard is held until then.
    pub(crate) fn allot(
        &self,
        resource: &Resource,
        object: &mut Object,
        old: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<Option<parking_lot::MutexGuard<'_, ()>>, Status> {
        if (&*resource.group, &*resource.kind) != ("", "Service") {
            return Ok(None);
        }
        let guard = self.allotting.lock();
        let mut taken = Allotment {
            dry: options.dry_run,
            ..Allotment::default()
        };
        for service in self.all(("", "services")) {
            if old.is_none_or(|old| old.meta("uid") != service.meta("uid")) {
                taken.note(&service);
            }
        }
        allot(object, &mut taken, &mut |below| self.world.below(below))
            .map_err(|errors| Status::invalid(&resource.group, &resource.kind, object.name(), &errors))?;
        Ok(Some(guard))
    }
}

/// Gives a service the addresses and ports that it lacks. `chance` picks a number below its argument.
fn allot(
    service: &mut Object,
    taken: &mut Allotment,
    chance: &mut dyn FnMut(usize) -> usize,
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
    set_families(spec);
    allot_address(spec, taken, chance)?;
    let wants_ports =
        kind == "NodePort" || (kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false);
    allot_ports(spec, wants_ports, taken, chance)?;
    if kind == "LoadBalancer"
        && spec["externalTrafficPolicy"] == "Local"
        && spec["healthCheckNodePort"].is_null()
    {
        spec["healthCheckNodePort"] = free_port("TCP", taken, chance).into();
    }
    Ok(())
}

fn set_families(spec: &mut Value) {
    let headless = spec["clusterIP"] == "None";
    // Nobody says what such a service points at: it may be anything.
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

fn allot_address(
    spec: &mut Value,
    taken: &mut Allotment,
    chance: &mut dyn FnMut(usize) -> usize,
) -> Result<(), Vec<FieldError>> {
    let said = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    if said.is_empty() && taken.dry {
        spec["clusterIP"] = "10.0.0.0".into();
    } else if said.is_empty() {
        let free = |range: Range<u8>| -> Vec<String> {
            let all = range.map(|last| Ipv4Addr::new(10, 0, 0, last).to_string());
            all.filter(|address| !taken.addresses.contains(address)).collect()
        };
        let free = [free(GIVEN), free(RESERVED)]
            .into_iter()
            .find(|free| !free.is_empty());
        let Some(free) = free else {
            let problem = Problem::Invalid(json!([]), "failed to allocate a serviceIP: range is full".into());
            return Err(vec![FieldError::new("spec.clusterIPs", problem)]);
        };
        spec["clusterIP"] = free[chance(free.len())].as_str().into();
    } else if said != "None" {
        let parsed: Option<Ipv4Addr> = said.parse().ok();
        let inside = parsed.is_some_and(|address| {
            let [a, b, c, last] = address.octets();
            [a, b, c] == [10, 0, 0] && ADDRESSES.contains(&last)
        });
        let why = if !inside && !taken.dry {
            "the provided network does not match the current range".to_owned()
        } else if !inside {
            format!(
                "the provided IP ({said}) is not in the valid range. The range of valid IPs is 10.0.0.0/24"
            )
        } else if taken.addresses.contains(&said) {
            "provided IP is already allocated".to_owned()
        } else {
            String::new()
        };
        if !why.is_empty() {
            let problem = Problem::Invalid(json!([said]), format!("failed to allocate IP {said}: {why}"));
            return Err(vec![FieldError::new("spec.clusterIPs", problem)]);
        }
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
    Ok(())
}

fn allot_ports(
    spec: &mut Value,
    wanted: bool,
    taken: &mut Allotment,
    chance: &mut dyn FnMut(usize) -> usize,
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
            Some(said) if said != 0 && !(taken.dry && u16::try_from(said).is_err()) => {
                let inside = |said: &u16| NODE_PORTS.contains(said) || taken.dry;
                let why = match u16::try_from(said).ok().filter(inside) {
                    None => {
                        "provided port is not in the valid range. The range of valid ports is 30000-32767"
                    }
                    Some(said) if taken.take(&protocol, said) => continue,
                    Some(_) => "provided port is already allocated",
                };
                let problem = Problem::Invalid(said.into(), why.into());
                errors.push(FieldError::new(format!("spec.ports[{index}].nodePort"), problem));
            }
            None | Some(0) if wanted => {
                port["nodePort"] = free_port(&protocol, taken, chance).into();
            }
            _ => {}
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// A port that nobody has; with all 2768 in use, the first again.
fn free_port(protocol: &str, taken: &mut Allotment, chance: &mut dyn FnMut(usize) -> usize) -> u16 {
    let free = taken.free();
    let port = if free.is_empty() {
        *NODE_PORTS.start()
    } else {
        free[chance(free.len())]
    };
    taken.take(protocol, port);
    port
}

/// The first of a service's addresses is the one that older clients know.
pub(super) fn list_address(service: &mut Object) {
    let spec = service.fields_mut().get_mut("spec");
    if let Some(spec) = spec.filter(|spec| spec["clusterIPs"].is_null()) {
        match spec["clusterIP"].as_str() {
            Some(address) if !address.is_empty() => spec["clusterIPs"] = json!([address]),
            _ => {}
        }
    }
}

/// What a changed service keeps if it does not say otherwise, and gives up if its type has no use for it.
pub(super) fn carry_over(service: &mut Object, old: &Object) {
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
            // What was only carried along goes; what is new is for the rules to refuse.
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
    // Of several for one port and protocol, the first counts.
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
    // What the type before had a use for and this one has not goes, unless it was changed as well.
    for (key, needs) in [
        (
            "externalTrafficPolicy",
            is_reached_from_outside as fn(&Value) -> bool,
        ),
        ("allocateLoadBalancerNodePorts", is_load_balancer),
        ("loadBalancerClass", is_load_balancer),
        ("healthCheckNodePort", has_health_port),
    ] {
        if needs(&before) && !needs(spec) && spec[key] == before[key] {
            remove(spec, key);
        }
    }
    if has_health_port(spec) && spec["healthCheckNodePort"].is_null() {
        spec["healthCheckNodePort"] = before["healthCheckNodePort"].clone();
    }
}

fn is_load_balancer(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer"
}

fn has_health_port(spec: &Value) -> bool {
    is_load_balancer(spec) && spec["externalTrafficPolicy"] == "Local"
}

fn is_reached_from_outside(spec: &Value) -> bool {
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
