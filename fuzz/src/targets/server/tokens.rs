//! Authentication: bearer tokens and impersonation headers.

use base64::{Engine, alphabet, engine::GeneralPurposeConfig, engine::general_purpose::GeneralPurpose};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{request::Draft, test_server::TestServer};
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{bytes, dictionary, tree},
};

const SELF_SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKEN_REQUESTS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// User of the genuine token.
const TOKEN_USER: &str = "system:serviceaccount:default:default";

const HEADERS: &[&str] = &[
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-a%2fb",
    "impersonate-extra-%ff",
    "authorization",
];

/// Decodes a token's parts as Go does: unused trailing bits may have any value.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

pub(super) struct Tokens {
    server: TestServer,
    genuine: String,
}

impl Tokens {
    pub(super) fn new() -> Self {
        let server = TestServer::new();
        let request = json!({"spec": {"expirationSeconds": 4_000_000_000_u64}});
        let response = server
            .send("POST", TOKEN_REQUESTS, &[], request.to_string().into())
            .json();
        let genuine = response["status"]["token"]
            .as_str()
            .expect("a token is given")
            .to_owned();
        Self { server, genuine }
    }
}

impl Target for Tokens {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let mut values = vec![
            format!("Bearer {}", self.genuine),
            format!("bearer   {}", self.genuine),
            "Bearer a.b.c".to_owned(),
            "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJrdWJlcm5ldGVzIn0.".to_owned(),
            "Basic YTpi".to_owned(),
            "Bearer".to_owned(),
            String::new(),
        ];
        // The same claims without a signature and with other algorithms.
        if let [_, claims, signature] = self.genuine.split('.').collect::<Vec<_>>()[..] {
            let head = |algorithm: &str| LENIENT.encode(json!({"alg": algorithm, "typ": "JWT"}).to_string());
            values.extend(
                ["none", "HS256", "EdDSA"].map(|algorithm| format!("Bearer {}.{claims}.", head(algorithm))),
            );
            values.push(format!("Bearer {}.{claims}.{signature}", head("none")));
        }
        let seeds = values.into_iter().map(|value| {
            let mut draft = Draft::new("POST", SELF_SUBJECT_REVIEWS, "application/json", "{}");
            draft.set_header("authorization", value.into_bytes());
            draft.to_bytes()
        });
        seeds.collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut draft = Draft::parse(input);
        let proof = draft.header("authorization").to_vec();
        match rng.u8(..8) {
            0 => {
                let name = rng.choice(HEADERS).copied().unwrap_or_default();
                draft.set_header(name, dictionary::text(rng).into_bytes());
            }
            1 => {
                let name = rng.choice(HEADERS).copied().unwrap_or_default();
                let users = [
                    "system:masters",
                    TOKEN_USER,
                    "system:anonymous",
                    "system:serviceaccount:::",
                ];
                draft.set_header(name, users[rng.usize(..4)].into());
            }
            2..5 => draft.set_header("authorization", forge(&proof, rng)),
            _ => draft.set_header("authorization", bytes::mutate(&proof, donor, rng)),
        }
        draft.to_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        // The server is never replaced, so that the genuine token stays valid.
        let draft = Draft::parse(input);
        let Some(request) = draft.build() else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let response = self.server.call_guarded(request);
        let allocated = meter.check(input.len())?;
        response.check()?;
        let user = response.json()["status"]["userInfo"]["username"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let accepted = response.is_success() && !user.is_empty() && user != "system:anonymous";
        if accepted && !self.is_genuine(&draft) {
            return Err(Invariant::Authentic.violated(format!(
                "a forged token authenticated as `{user}`: {}",
                response.text()
            )));
        }
        Ok(Outcome {
            accepted,
            fingerprint: response.digest(),
            allocated,
        })
    }
}

impl Tokens {
    /// Whether a header holds a token that decodes to the genuine one.
    fn is_genuine(&self, draft: &Draft) -> bool {
        let genuine = read(&self.genuine);
        draft.headers.iter().any(|(name, value)| {
            let text = String::from_utf8_lossy(value);
            let token = text.trim().rsplit(' ').next().unwrap_or_default();
            name == "authorization" && read(token) == genuine
        })
    }
}

fn read(token: &str) -> Option<Vec<Vec<u8>>> {
    token.split('.').map(|part| LENIENT.decode(part).ok()).collect()
}

/// Changes a token's claims or header.
fn forge(proof: &[u8], rng: &mut Rng) -> Vec<u8> {
    let text = String::from_utf8_lossy(proof).into_owned();
    let mut parts: Vec<String> = text
        .trim_start_matches("Bearer ")
        .split('.')
        .map(str::to_owned)
        .collect();
    let position = rng.usize(..parts.len().min(2));
    let decoded = LENIENT.decode(&parts[position]).unwrap_or_default();
    let mut claims: Value = serde_json::from_slice(&decoded).unwrap_or_else(|_| json!({}));
    tree::mutate(
        &mut claims,
        &json!({"sub": TOKEN_USER, "alg": "none", "exp": 1, "aud": []}),
        rng,
    );
    parts[position] = LENIENT.encode(tree::text(&claims, rng));
    format!("Bearer {}", parts.join(".")).into_bytes()
}
