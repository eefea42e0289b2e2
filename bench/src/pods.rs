//! Realistic pods: about 6 KB each, all different.

use serde_json::{Value, json};

/// Returns the names of the pods of a round.
pub fn names(round: usize, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("pod-{round}-{number:05}"))
        .collect()
}

/// Creates a pod of three containers with environments, probes and volumes, as an operator would.
pub fn pod(name: &str) -> Value {
    // Varies from pod to pod, but is always the same for a name.
    let seed = name.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let containers: Vec<_> = ["main", "proxy", "reporter"]
        .iter()
        .enumerate()
        .map(|(place, container)| {
            let number = seed.wrapping_mul(place as u64 + 3);
            let env: Vec<_> = (0..18)
                .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{:x}-{n}", number >> n)}))
                .collect();
            json!({
                "name": container,
                "image": format!("registry.example.com/team-{}/{container}:1.{}.{n}", seed % 97, seed % 31, n = number % 1009),
                "args": ["--verbose", format!("--shard={}", number % 4096), format!("--address=10.0.{}.{}:8080", number % 250, seed % 250)],
                "env": env,
                "ports": [{"name": "http", "containerPort": 8080 + place}],
                "resources": {
                    "requests": {"cpu": format!("{}m", 50 + number % 400), "memory": format!("{}Mi", 64 + seed % 900)},
                    "limits": {"memory": format!("{}Mi", 1024 + seed % 900)},
                },
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5 + number % 10},
                "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}, "initialDelaySeconds": 10},
                "volumeMounts": [
                    {"name": "settings", "mountPath": "/etc/settings", "readOnly": true},
                    {"name": "scratch", "mountPath": format!("/var/scratch/{}", seed % 1000)},
                ],
            })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": format!("service-{}", seed % 211),
                "app.kubernetes.io/instance": name,
                "pod-template-hash": format!("{:08x}", seed >> 32),
                "topology.example.com/zone": format!("zone-{}", seed % 3),
            },
            "annotations": {
                "example.com/checksum": format!("{:016x}{:016x}", seed, seed.rotate_left(17)),
                "example.com/owner": format!("team-{}@example.com", seed % 97),
            },
        },
        "spec": {
            "containers": containers,
            "nodeSelector": {"topology.example.com/zone": format!("zone-{}", seed % 3)},
            "volumes": [
                {"name": "settings", "configMap": {"name": format!("settings-{}", seed % 211)}},
                {"name": "scratch", "emptyDir": {"sizeLimit": format!("{}Mi", 100 + seed % 900)}},
            ],
        },
    })
}

/// Creates a small object.
pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_about_six_kilobytes_and_differ() {
        let [one, other] = ["pod-0-00001", "pod-0-00002"].map(|name| pod(name).to_string());
        assert!((4_500..7_000).contains(&one.len()), "{}", one.len());
        assert_ne!(one, other);
    }
}
