//! A test server, used by a user who may write everything but may not escalate privileges.

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

/// The work of requests by name, and their response codes.
pub(crate) type Measurements = BTreeMap<&'static str, (u16, Work)>;

pub(crate) struct Harness<'s> {
    pub(crate) schemas: &'s Schemas,
    server: Server,
    counter: Cell<usize>,
}

impl<'s> Harness<'s> {
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
            counter: Cell::new(0),
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

    /// Returns a new number with every call.
    pub(crate) fn unique_number(&self) -> usize {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    /// Sends a request and records its work.
    pub(crate) async fn measure(
        &self,
        works: &mut Measurements,
        what: &'static str,
        request: Request,
    ) -> u16 {
        self.measure_all(works, what, vec![request]).await
    }

    /// Sends several requests and records their work as one. Returns the last response's code.
    pub(crate) async fn measure_all(
        &self,
        works: &mut Measurements,
        what: &'static str,
        requests: Vec<Request>,
    ) -> u16 {
        let mut code = 0;
        let send_all = async {
            for request in requests {
                let place = format!("{what}: {} {}", request.method, request.path);
                let answer;
                (code, answer) = self.send(request).await;
                let text = String::from_utf8_lossy(&answer);
                assert!(
                    !text.contains("the request could not be handled"),
                    "{place} panicked"
                );
            }
        };
        let ((), work) = Work::measure(send_all).await;
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

/// Files whose work another test bounds: it may be quadratic within a limit.
const BOUNDED_ELSEWHERE: [&str; 1] = [
    // `long_texts_are_compared_in_a_bounded_number_of_steps`
    "internal_types/diff.rs",
];

/// Source locations whose work grew too fast, with the first request that showed it and their number.
#[derive(Default)]
pub(crate) struct Violations(BTreeMap<String, (String, usize)>);

impl Violations {
    pub(crate) fn check(&mut self, place: &str, n: usize, [once, twice, four]: &mut [Measurements; 3]) {
        let requests: Vec<_> = four.keys().copied().collect();
        for request in requests {
            let works = [once.remove(request), twice.remove(request), four.remove(request)];
            let [Some((code, once)), Some((second, twice)), Some((third, four))] = works else {
                continue;
            };
            // A rejected request does less work, so different codes cannot be compared.
            if [second, third] != [code; 2] {
                continue;
            }
            for (site, counts) in faster_than_linear(n as u64, &[once, twice, four]) {
                if BOUNDED_ELSEWHERE.iter().any(|file| site.starts_with(file)) {
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
