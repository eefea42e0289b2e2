//! The cells of services, endpoints and ingresses.

use serde_json::Value;

use super::{Row, items, labels, number, or_none, text};

impl Row<'_> {
    pub(super) fn service(&self) -> Vec<Value> {
        let external: Vec<_> = items(self.object, "/spec/externalIPs")
            .filter_map(Value::as_str)
            .collect();
        let balancer = items(self.object, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
            "" => text(i, "/hostname"),
            ip => ip,
        });
        let outside = match self.text("/spec/type") {
            "ClusterIP" | "NodePort" => or_none(&external.join(",")),
            "LoadBalancer" => match balancer.chain(external).collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "<pending>".into(),
                list => list.into(),
            },
            "ExternalName" => self.text("/spec/externalName").into(),
            _ => "<unknown>".into(),
        };
        let ports: Vec<_> = items(self.object, "/spec/ports")
            .map(|port| {
                let (number, protocol) = (number(port, "/port"), text(port, "/protocol"));
                match port["nodePort"].as_i64().filter(|p| *p > 0) {
                    Some(node) => format!("{number}:{node}/{protocol}"),
                    None => format!("{number}/{protocol}"),
                }
            })
            .collect();
        vec![
            self.text("/metadata/name").into(),
            self.text("/spec/type").into(),
            or_none(self.text("/spec/clusterIPs/0")),
            outside,
            or_none(&ports.join(",")),
            self.age(),
            labels(self.object.pointer("/spec/selector")).into(),
        ]
    }

    pub(super) fn endpoints(&self) -> String {
        let mut all = Vec::new();
        for subset in items(self.object, "/subsets") {
            for address in items(subset, "/addresses") {
                let ip = text(address, "/ip");
                let ports: Vec<_> = items(subset, "/ports")
                    .map(|p| format!("{ip}:{}", number(p, "/port")))
                    .collect();
                all.extend(if ports.is_empty() {
                    vec![ip.to_owned()]
                } else {
                    ports
                });
            }
        }
        join_shortened(&all, 3)
    }

    pub(super) fn slice(&self) -> Vec<Value> {
        let ports: Vec<_> = items(self.object, "/ports")
            .map(|port| port["port"].as_i64().map_or("*".to_owned(), |p| p.to_string()))
            .collect();
        let ports = match self.object.pointer("/ports") {
            None | Some(Value::Null) => "<unset>".to_owned(),
            Some(_) => join_shortened(&ports, 3),
        };
        let addresses: Vec<_> = items(self.object, "/endpoints")
            .flat_map(|endpoint| items(endpoint, "/addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        let endpoints = if addresses.is_empty() {
            "<unset>".to_owned()
        } else {
            join_shortened(&addresses, 3)
        };
        vec![
            self.text("/metadata/name").into(),
            self.text("/addressType").into(),
            ports.into(),
            endpoints.into(),
            self.age(),
        ]
    }

    pub(super) fn ingress(&self) -> Vec<Value> {
        let rules = self.count("/spec/rules");
        let hosts: Vec<_> = items(self.object, "/spec/rules")
            .map(|r| text(r, "/host"))
            .filter(|h| !h.is_empty())
            .collect();
        let hosts = match hosts.len() {
            0 => "*".to_owned(),
            4.. => format!("{} + {} more...", hosts[..3].join(","), rules - 3),
            _ => hosts.join(","),
        };
        let addresses: Vec<_> = items(self.object, "/status/loadBalancer/ingress")
            .map(|i| {
                if text(i, "/ip").is_empty() {
                    text(i, "/hostname")
                } else {
                    text(i, "/ip")
                }
            })
            .collect();
        vec![
            self.text("/metadata/name").into(),
            self.text_or("/spec/ingressClassName", "<none>"),
            hosts.into(),
            addresses.join(",").into(),
            if self.count("/spec/tls") > 0 {
                "80, 443"
            } else {
                "80"
            }
            .into(),
            self.age(),
        ]
    }
}

fn join_shortened(list: &[String], most: usize) -> String {
    if list.len() > most {
        format!("{} + {} more...", list[..most].join(","), list.len() - most)
    } else {
        list.join(",")
    }
}
