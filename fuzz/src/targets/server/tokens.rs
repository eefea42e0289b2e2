//! Proofs of who sends a request: bearer tokens and headers for impersonation.

use base64::{Engine, alphabet, engine::GeneralPurposeConfig, engine::general_purpose::GeneralPurpose};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{ask::Subject, request::Draft};
use crate::{
    engine::{Outcome, Target},
    laws::{Law, Meter, Violation},
    mutate::{bytes, tree, words},
};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// Who the genuine token is for.
const ACCOUNT: &str = "system:serviceaccount:default:default";

const HEADERS: &[&str] = &[
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-a%2fb",
    "impersonate-extra-%ff",
    "authorization",
];

/// As Go reads the parts of a token: bits that stand for nothing may be anything.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

pub(super) struct Tokens {
    subject: Subject,
    genuine: String,
}

impl Tokens {
    pub(super) fn new() -> Self {
        let subject = Subject::new();
        let request = json!({"spec": {"expirationSeconds": 4_000_000_000_u64}});
        let answer = subject
            .send("POST", TOKENS, &[], request.to_string().into())
            .json();
        let genuine = answer["status"]["token"]
            .as_str()
            .expect("a token is given")
            .to_owned();
        Self { subject, genuine }
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
        // The same claims without a signature, and with another algorithm.
        if let [_, claims, signature] = self.genuine.split('.').collect::<Vec<_>>()[..] {
            let head = |algorithm: &str| LENIENT.encode(json!({"alg": algorithm, "typ": "JWT"}).to_string());
            values.extend(
                ["none", "HS256", "EdDSA"].map(|algorithm| format!("Bearer {}.{claims}.", head(algorithm))),
            );
            values.push(format!("Bearer {}.{claims}.{signature}", head("none")));
        }
        let seeds = values.into_iter().map(|value| {
            let mut draft = Draft::new("POST", REVIEW, "application/json", "{}");
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
                draft.set_header(name, words::text(rng).into_bytes());
            }
            1 => {
                let name = rng.choice(HEADERS).copied().unwrap_or_default();
                let users = [
                    "system:masters",
                    ACCOUNT,
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
        // The server is never replaced: its token must stay the genuine one.
        let draft = Draft::parse(input);
        let Some(request) = draft.build() else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let answer = self.subject.ask_guarded(request);
        let allocated = meter.check(input.len())?;
        answer.check()?;
        let user = answer.json()["status"]["userInfo"]["username"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let accepted = answer.is_success() && !user.is_empty() && user != "system:anonymous";
        if accepted && !self.is_genuine(&draft) {
            return Err(Law::Authentic.broken(format!(
                "a forged proof was taken for `{user}`: {}",
                answer.text()
            )));
        }
        Ok(Outcome {
            accepted,
            answer: answer.digest(),
            allocated,
        })
    }
}

impl Tokens {
    /// Whether some header holds a token that reads as the genuine one.
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

/// A token whose claims or header are changed inside.
fn forge(proof: &[u8], rng: &mut Rng) -> Vec<u8> {
    let text = String::from_utf8_lossy(proof).into_owned();
    let mut parts: Vec<String> = text
        .trim_start_matches("Bearer ")
        .split('.')
        .map(str::to_owned)
        .collect();
    let place = rng.usize(..parts.len().min(2));
    let decoded = LENIENT.decode(&parts[place]).unwrap_or_default();
    let mut claims: Value = serde_json::from_slice(&decoded).unwrap_or_else(|_| json!({}));
    tree::mutate(
        &mut claims,
        &json!({"sub": ACCOUNT, "alg": "none", "exp": 1, "aud": []}),
        rng,
    );
    parts[place] = LENIENT.encode(tree::text(&claims, rng));
    format!("Bearer {}", parts.join(".")).into_bytes()
}
