//! A server to send requests to, by a user who may write everything but hand out what they do not have.

use std::{cell::Cell, collections::BTreeMap};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tower::ServiceExt;
use windlass_growth::{Server, User};

use crate::{
    measure::{Work, faster_than_linear},
    requests::Request,
    schemas::Schemas,
};

pub(crate) const JSON: &str = "application/json";

/// The work of requests by what they do, and the codes of their answers.
pub(crate) type Works = BTreeMap<&'static str, (u16, Work)>;

pub(crate) struct Lab<'s> {
    pub(crate) schemas: &'s Schemas,
    server: Server,
    names: Cell<usize>,
}

impl<'s> Lab<'s> {
    pub(crate) async fn new(schemas: &'s Schemas) -> Self {
        let administrator = Server::seeded(1).rbac().without_service_accounts().build();
        let group = "rbac.authorization.k8s.io";
        let verbs = [
            "get",
            "list",
            "create",
            "update",
            "patch",
            "delete",
            "impersonate",
        ];
        let role = json!({"metadata": {"name": "writer"}, "rules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}]});
        let binding = json!({
            "metadata": {"name": "writer"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "writer"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "writer"}],
        });
        let mut lab = Self {
            schemas,
            server: administrator.clone(),
            names: Cell::new(0),
        };
        for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let request = Request {
                method: "POST",
                path: format!("/apis/{group}/v1/{plural}"),
                kind: JSON,
                headers: Vec::new(),
                body: object.to_string(),
            };
            assert_eq!(lab.send(request).await.0, 201);
        }
        lab.server = administrator.as_user(User::new("writer", [] as [&str; 0]));
        lab
    }

    /// Another number with every call.
    pub(crate) fn number(&self) -> usize {
        self.names.set(self.names.get() + 1);
        self.names.get()
    }

    /// Sends a request and notes its work.
    pub(crate) async fn measure(&self, works: &mut Works, what: &'static str, request: Request) -> u16 {
        let place = format!("{what}: {} {}", request.method, request.path);
        let ((code, answer), work) = Work::of(self.send(request)).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(
            !text.contains("the request could not be handled"),
            "{place} panicked"
        );
        works.insert(what, (code, work));
        code
    }

    pub(crate) async fn send(&self, request: Request) -> (u16, Bytes) {
        let Request {
            method,
            path,
            kind,
            headers,
            body,
        } = request;
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        let response = match self.server.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("never fails");
        (code, body.to_bytes())
    }
}

/// Files whose work is bounded by another test than these: it may be pairs as long as they are few.
const BOUNDED: [&str; 1] = [
    // `long_texts_are_compared_in_a_bounded_number_of_steps`
    "internals/diff.rs",
];

/// Places in the source that grew too fast, with the first request that showed it and how many did.
#[derive(Default)]
pub(crate) struct Suspects(BTreeMap<String, (String, usize)>);

impl Suspects {
    pub(crate) fn judge(&mut self, place: &str, n: usize, [once, twice, four]: &mut [Works; 3]) {
        let requests: Vec<_> = four.keys().copied().collect();
        for request in requests {
            let works = [once.remove(request), twice.remove(request), four.remove(request)];
            let [Some((code, once)), Some((second, twice)), Some((third, four))] = works else {
                continue;
            };
            // Less is done with what is refused.
            if [second, third] != [code; 2] {
                continue;
            }
            for (site, counts) in faster_than_linear(n as u64, &[once, twice, four]) {
                if BOUNDED.iter().any(|file| site.starts_with(file)) {
                    continue;
                }
                let example = format!("{request} {place}: {counts:?}");
                self.0.entry(site).or_insert((example, 0)).1 += 1;
            }
        }
    }

    pub(crate) fn assert_none(&self) {
        let line = |(site, (example, count)): (&String, &(String, usize))| {
            format!("{site}: {count} requests, such as {example}")
        };
        let lines: Vec<_> = self.0.iter().map(line).collect();
        let lines = lines.join("\n");
        assert!(lines.is_empty(), "work grows faster than the request at\n{lines}");
    }
}
