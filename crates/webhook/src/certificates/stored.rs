//! What is in the Secret.
//!
//! | key | value |
//! |---|---|
//! | `tls.crt`, `tls.key` | the leaf, as in any Secret of type `kubernetes.io/tls` |
//! | `ca.crt` | the bundle, for other clients |
//! | `authorities.json` | the CAs with their keys |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Seconds,
    authority::{Authority, Leaf, validity},
    bundle::{Bundle, certified_key},
};

pub(super) const CERTIFICATE_KEY: &str = "tls.crt";
pub(super) const PRIVATE_KEY_KEY: &str = "tls.key";
pub(super) const BUNDLE_KEY: &str = "ca.crt";
const AUTHORITIES_KEY: &str = "authorities.json";

/// The data of the Secret.
pub(crate) type SecretData = BTreeMap<String, Vec<u8>>;

/// All certificates: what the replicas agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) authorities: Authorities,
    /// `None` if it is missing or damaged.
    pub(super) leaf: Option<Leaf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authorities {
    /// The CA that signs leaves.
    pub(super) signing: Authority,
    /// The CA that will sign them, once it is trusted everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<Authority>,
    /// CAs that signed leaves which may still be served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) retired: Vec<Retired>,
    /// The names and addresses that the leaf is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) hosts: Vec<String>,
}

/// A CA that no longer signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Retired {
    pub(super) certificate: String,
    /// When its last leaf expires.
    pub(super) until: Seconds,
}

impl Stored {
    /// Reads a Secret. `None` if it has no usable CAs.
    pub(super) fn parse(data: &SecretData) -> Option<Self> {
        let text = |key: &str| String::from_utf8(data.get(key)?.clone()).ok();
        let leaf = text(CERTIFICATE_KEY).zip(text(PRIVATE_KEY_KEY));
        let mut authorities: Authorities = serde_json::from_slice(data.get(AUTHORITIES_KEY)?).ok()?;
        if !authorities.signing.is_usable() {
            return None;
        }
        authorities.next = authorities.next.filter(Authority::is_usable);
        authorities
            .retired
            .retain(|retired| validity(&retired.certificate).is_some());
        Some(Self {
            authorities,
            leaf: leaf
                .map(|(chain, key)| Leaf { chain, key })
                .filter(|leaf| certified_key(&leaf.chain, &leaf.key).is_ok()),
        })
    }

    pub(super) fn to_data(&self) -> SecretData {
        let leaf = self.leaf.as_ref();
        let authorities =
            serde_json::to_vec(&self.authorities).expect("texts and numbers can be written as JSON");
        BTreeMap::from([
            (AUTHORITIES_KEY.to_owned(), authorities),
            (BUNDLE_KEY.to_owned(), self.bundle().into_bytes()),
            (
                CERTIFICATE_KEY.to_owned(),
                leaf.map_or_else(Vec::new, |leaf| leaf.chain.clone().into_bytes()),
            ),
            (
                PRIVATE_KEY_KEY.to_owned(),
                leaf.map_or_else(Vec::new, |leaf| leaf.key.clone().into_bytes()),
            ),
        ])
    }

    /// All CAs that must be trusted, as PEM.
    pub(super) fn bundle(&self) -> String {
        let authorities = &self.authorities;
        let retired = authorities
            .retired
            .iter()
            .map(|retired| retired.certificate.as_str());
        let next = authorities.next.as_ref().map(|next| next.certificate.as_str());
        std::iter::once(authorities.signing.certificate.as_str())
            .chain(next)
            .chain(retired)
            .collect()
    }

    /// Whether the signing CA's leaf can be served for these hosts now.
    pub(super) fn has_valid_leaf(&self, hosts: &[String], now: Seconds) -> bool {
        let signing = Bundle::parse(self.authorities.signing.certificate.as_bytes());
        self.leaf
            .as_ref()
            .is_some_and(|leaf| signing.trusts(&leaf.chain, hosts, now).is_ok())
    }
}
