//! Service accounts' tokens: JWTs as a real server makes them, and what they are worth.
//!
//! They are signed with a key of the server's own (Ed25519, whose signatures depend on nothing but key and text, so that
//! a seeded server gives the same tokens again). A token is worth as much as the objects that it is bound to: its account,
//! and perhaps a pod, a secret or a node, are looked up each time.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ISSUER,
    user::{CREDENTIAL, User},
};
use crate::{object::Object, storage::Key, verbs::Api};

/// How much clocks may differ.
const LEEWAY_SECONDS: i64 = 60;

/// How many tokens are remembered whose signatures were good.
const REMEMBERED: usize = 1024;

/// Signs the tokens of one server, and knows its own signatures again.
pub(crate) struct Signatures {
    key: Ed25519KeyPair,
    good: Mutex<HashMap<Box<str>, Arc<Claims>>>,
}

/// What a token says.
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
    about: About,
}

/// One or several.
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

/// What a token is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
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

impl Signatures {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self {
            key: Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes"),
            good: Mutex::default(),
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

    /// What a token says, `None` if it is not one of any server like this; an error if this one did not sign it.
    fn claims(&self, token: &str) -> Result<Option<Arc<Claims>>, String> {
        if let Some(known) = self.good.lock().get(token) {
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
        let mut good = self.good.lock();
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(token.into(), claims.clone());
        Ok(Some(claims))
    }
}

impl Api {
    /// Whose token it is, and for which of the audiences. `None` if it is no service account's token at all.
    pub(super) fn account_of_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<(User, Vec<String>)>, String> {
        let Some(claims) = self.guard.signatures.claims(token)? else {
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
        let now = self.world.now().as_second();
        if claims.exp + LEEWAY_SECONDS < now {
            return Err("service account token has expired".to_owned());
        }
        if claims.nbf > now + LEEWAY_SECONDS {
            return Err("service account token is not valid yet".to_owned());
        }
        if claims.iat > now + LEEWAY_SECONDS {
            return Err("service account token is issued in the future".to_owned());
        }
        let about = &claims.about;
        let (namespace, name) = (&*about.namespace, &*about.serviceaccount.name);
        let account = self
            .object_of("serviceaccounts", namespace, name)
            .ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        let uid = account.meta("uid");
        if uid != about.serviceaccount.uid {
            let claimed = &about.serviceaccount.uid;
            return Err(format!(
                "service account UID ({uid}) does not match claim ({claimed})"
            ));
        }
        if self.is_long_gone(&account) {
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
            know(CREDENTIAL, &format!("JTI={}", claims.jti));
        }
        if let Some(secret) = &about.secret {
            self.check_bound("secrets", namespace, secret)?;
        }
        if let Some(pod) = &about.pod {
            self.check_bound("pods", namespace, pod)?;
            know("authentication.kubernetes.io/pod-name", &pod.name);
            know("authentication.kubernetes.io/pod-uid", &pod.uid);
        }
        if let Some(node) = &about.node {
            // A pod's token only tells where the pod is; whether that node is there is not its business.
            if about.pod.is_none() {
                self.check_bound("nodes", "", node)?;
            }
            know("authentication.kubernetes.io/node-name", &node.name);
            know("authentication.kubernetes.io/node-uid", &node.uid);
        }
        Ok(user)
    }

    /// A token is worth nothing once the object that it is bound to is gone.
    fn check_bound(&self, plural: &str, namespace: &str, bound: &Reference) -> Result<(), String> {
        let gone = || "service account token has been invalidated".to_owned();
        let object = self.object_of(plural, namespace, &bound.name).ok_or_else(gone)?;
        let (uid, claimed) = (object.meta("uid"), &bound.uid);
        if uid != claimed {
            let kind = plural.trim_end_matches('s');
            return Err(format!(
                "{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"
            ));
        }
        if self.is_long_gone(&object) {
            Err(gone())
        } else {
            Ok(())
        }
    }

    fn object_of(&self, plural: &str, namespace: &str, name: &str) -> Option<Object> {
        let catalogue = self.registry.catalogue();
        let resource = catalogue.find("", "v1", plural).expect("built in");
        let entry = self.storage.get(&resource.table, &Key::new(namespace, name))?;
        entry.object.decode().ok()
    }

    fn is_long_gone(&self, object: &Object) -> bool {
        let deleted = object.meta("deletionTimestamp").parse::<jiff::Timestamp>();
        deleted.is_ok_and(|deleted| deleted.as_second() < self.world.now().as_second() - LEEWAY_SECONDS)
    }
}

/// As Go quotes a list.
fn quoted(list: &[String]) -> String {
    let quoted: Vec<_> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
