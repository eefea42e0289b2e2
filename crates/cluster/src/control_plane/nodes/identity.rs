//! IDs and image names that look real and are the same on every run.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns 64 hexadecimal digits, like a SHA-256 digest.
pub(super) fn digest(of: &str) -> String {
    let [a, b, c, d] = [0, 1, 2, 3].map(|part| hash(part, of));
    format!("{a:016x}{b:016x}{c:016x}{d:016x}")
}

/// Returns a version 4 UUID.
pub(super) fn uuid(of: &str) -> String {
    let (high, low) = (hash(0, of), hash(1, of));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

fn hash(part: u8, of: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (part, of).hash(&mut hasher);
    hasher.finish()
}

/// Returns the full name of an image, with registry and tag, as a container runtime shows it.
pub(super) fn full_image_name(image: &str) -> String {
    let (first, _) = image.split_once('/').unwrap_or(("", image));
    let with_registry = if first.contains(['.', ':']) || first == "localhost" {
        image.to_owned()
    } else if first.is_empty() {
        format!("docker.io/library/{image}")
    } else {
        format!("docker.io/{image}")
    };
    let last = with_registry.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) {
        with_registry
    } else {
        format!("{with_registry}:latest")
    }
}

/// Returns the ID of an image: its name without tag, and a digest.
pub(super) fn image_id(image: &str) -> String {
    let full = full_image_name(image);
    if full.contains('@') {
        return full;
    }
    let name = full.rsplit_once(':').map_or(full.as_str(), |(name, _)| name);
    format!("{name}@sha256:{}", digest(&full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_image_adds_registry_and_tag() {
        for (image, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("bitnami/redis", "docker.io/bitnami/redis:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("a@sha256:00", "docker.io/library/a@sha256:00"),
        ] {
            assert_eq!(full_image_name(image), full);
        }
        let id = image_id("nginx:1.27");
        assert!(
            id.starts_with("docker.io/library/nginx@sha256:") && id.len() == 31 + 64,
            "{id}"
        );
    }

    #[test]
    fn ids_are_deterministic_and_distinct() {
        assert_eq!(uuid("a"), uuid("a"));
        assert_ne!(uuid("a"), uuid("b"));
        assert_eq!((uuid("a").len(), &uuid("a")[14..15]), (36, "4"));
        assert_eq!(digest("a").len(), 64);
    }
}
