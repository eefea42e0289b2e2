//! Service account tokens: signing and verification of JWTs like a real server's.
//!
//! Tokens are signed with the server's own Ed25519 key. Ed25519 signatures depend only on key and text, so a seeded
//! server issues the same tokens again. A token is valid only as long as the objects that it is bound to: its service
//! account, and optionally a pod, a secret or a node, are looked up on each use.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AccessControl, ISSUER,
    user::{CREDENTIAL_ID_KEY, User},
};
use crate::storage::{Entry, Key};

/// Tolerated clock skew.
const LEEWAY_SECONDS: i64 = 60;

/// Maximum number of cached tokens with a verified signature.
const MAX_VERIFIED_TOKENS: usize = 1024;

/// Signs the tokens of one server and verifies them.
pub(crate) struct TokenSigner {
    key: Ed25519KeyPair,
    verified: Mutex<HashMap<Box<str>, Arc<Claims>>>,
}

/// The claims of a token.
#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    #[serde(default)]
    aud: Audiences,
    #[serde(default)]
    exp: i64,
    #[serde(default)]
    nbf: i64,
    #[serde(default)]
    iat: i64,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io", default)]
    private: PrivateClaims,
}

/// One audience or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// The `kubernetes.io` claims: the service account, and the objects that the token is bound to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PrivateClaims {
    namespace: String,
    serviceaccount: Reference,
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    name: String,
    uid: String,
}

impl TokenSigner {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self {
            key: Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes"),
            verified: Mutex::default(),
        }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!(
            "{}.{}",
            part(&json!({"alg": "EdDSA", "kid": "windlass"})),
            part(claims)
        );
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }

    /// Returns the claims of a token. `None` if it was not issued by a server like this; an error if the signature is
    /// invalid.
    fn claims(&self, token: &str) -> Result<Option<Arc<Claims>>, String> {
        if let Some(known) = self.verified.lock().get(token) {
            return Ok(Some(known.clone()));
        }
        let Some((text, signature)) = token.rsplit_once('.') else {
            return Ok(None);
        };
        let claims = text
            .split_once('.')
            .and_then(|(_, claims)| URL_SAFE_NO_PAD.decode(claims).ok())
            .and_then(|json| serde_json::from_slice::<Claims>(&json).ok())
            .filter(|claims| claims.iss == ISSUER);
        let Some(claims) = claims else {
            return Ok(None);
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        let public = UnparsedPublicKey::new(&ED25519, self.key.public_key().as_ref());
        public
            .verify(text.as_bytes(), &signature)
            .map_err(|_| "square/go-jose: error in cryptographic primitive".to_owned())?;
        let claims = Arc::new(claims);
        let mut good = self.verified.lock();
        if good.len() >= MAX_VERIFIED_TOKENS {
            good.clear();
        }
        good.insert(token.into(), claims.clone());
        Ok(Some(claims))
    }
}

impl AccessControl {
    /// Returns the service account of a token and the audiences that match. `None` if it is not a service account
    /// token.
    pub(super) fn service_account_of_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<(User, Vec<String>)>, String> {
        let Some(claims) = self.token_signer.claims(token)? else {
            return Ok(None);
        };
        let own = match &claims.aud {
            Audiences::One(one) => std::slice::from_ref(one),
            Audiences::Several(several) => several,
        };
        let shared: Vec<_> = own
            .iter()
            .filter(|own| audiences.contains(own))
            .cloned()
            .collect();
        if shared.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(own),
                quoted(audiences)
            ));
        }
        let user = self.check_claims(&claims)?;
        Ok(Some((user, shared)))
    }

    fn check_claims(&self, claims: &Claims) -> Result<User, String> {
        let now = self.store.environment.now().as_second();
        if claims.exp + LEEWAY_SECONDS < now {
            return Err("service account token has expired".to_owned());
        }
        if claims.nbf > now + LEEWAY_SECONDS {
            return Err("service account token is not valid yet".to_owned());
        }
        if claims.iat > now + LEEWAY_SECONDS {
            return Err("service account token is issued in the future".to_owned());
        }
        let about = &claims.private;
        let (namespace, name) = (&*about.namespace, &*about.serviceaccount.name);
        let account = self
            .core_object("serviceaccounts", namespace, name)
            .ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        let uid = account.object.uid();
        if uid != about.serviceaccount.uid {
            let claimed = &about.serviceaccount.uid;
            return Err(format!(
                "service account UID ({uid}) does not match claim ({claimed})"
            ));
        }
        if self.is_deleted_past_leeway(&account) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let mut user = User::service_account(namespace, name);
        uid.clone_into(&mut user.uid);
        let mut know = |key: &str, value: &str| {
            if !value.is_empty() {
                user.extra.insert(key.to_owned(), vec![value.to_owned()]);
            }
        };
        if !claims.jti.is_empty() {
            know(CREDENTIAL_ID_KEY, &format!("JTI={}", claims.jti));
        }
        if let Some(secret) = &about.secret {
            self.check_bound_object("secrets", namespace, secret)?;
        }
        if let Some(pod) = &about.pod {
            self.check_bound_object("pods", namespace, pod)?;
            know("authentication.kubernetes.io/pod-name", &pod.name);
            know("authentication.kubernetes.io/pod-uid", &pod.uid);
        }
        if let Some(node) = &about.node {
            // The node in a pod's token is informational: only the pod has to exist.
            if about.pod.is_none() {
                self.check_bound_object("nodes", "", node)?;
            }
            know("authentication.kubernetes.io/node-name", &node.name);
            know("authentication.kubernetes.io/node-uid", &node.uid);
        }
        Ok(user)
    }

    /// Checks the object that a token is bound to: it must still exist, with the same UID.
    fn check_bound_object(&self, plural: &str, namespace: &str, bound: &Reference) -> Result<(), String> {
        let gone = || "service account token has been invalidated".to_owned();
        let object = self
            .core_object(plural, namespace, &bound.name)
            .ok_or_else(gone)?;
        let (uid, claimed) = (object.object.uid(), &bound.uid);
        if uid != claimed {
            let kind = plural.trim_end_matches('s');
            return Err(format!(
                "{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"
            ));
        }
        if self.is_deleted_past_leeway(&object) {
            Err(gone())
        } else {
            Ok(())
        }
    }

    /// Found on every request: it is not decoded, which would take as long as it is large.
    fn core_object(&self, plural: &str, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        self.store.builtin_entry(("", plural), &Key::new(namespace, name))
    }

    fn is_deleted_past_leeway(&self, entry: &Entry) -> bool {
        if !entry.object.is_deleting() {
            return false;
        }
        let deleted = entry.object.deletion_timestamp().parse::<jiff::Timestamp>();
        deleted.is_ok_and(|deleted| {
            deleted.as_second() < self.store.environment.now().as_second() - LEEWAY_SECONDS
        })
    }
}

/// Formats a list like Go's `%q`.
fn quoted(list: &[String]) -> String {
    let quoted: Vec<_> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
