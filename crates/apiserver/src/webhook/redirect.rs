//! Follows the redirects of a webhook, as Go's HTTP client does.
//!
//! The `ServeMux` of Go, which most webhooks use, redirects to the clean form of a path.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use super::{CallFailure, url::WebhookUrl};

/// Go's limit.
const MAX_REQUESTS: usize = 10;

/// What a real server calls itself.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");

/// One request of a call.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) url: WebhookUrl,
    method: Method,
    has_body: bool,
    referer: Option<String>,
    /// How many requests there were, with this one.
    number: usize,
}

impl Hop {
    /// The first request of a call.
    pub(super) fn first(url: WebhookUrl) -> Self {
        Self {
            url,
            method: Method::POST,
            has_body: true,
            referer: None,
            number: 1,
        }
    }

    /// The request, with this body unless a redirect has dropped it.
    pub(super) fn request<B: Default>(&self, body: impl FnOnce() -> B) -> Result<Request<B>, http::Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.url.target())
            .header(header::HOST, self.url.authority())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::ACCEPT_ENCODING, "gzip");
        if let Some(referer) = &self.referer {
            request = request.header(header::REFERER, referer);
        }
        if self.has_body {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(if self.has_body { body() } else { B::default() })
    }

    /// The request that a response asks for; `None` if it is the result.
    pub(super) fn next<B>(&self, response: &Response<B>) -> Result<Option<Self>, CallFailure> {
        let (method, has_body) = match response.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => (Method::GET, false),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                (self.method.clone(), self.has_body)
            }
            _ => return Ok(None),
        };
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let Some(location) = location.filter(|location| !location.is_empty()) else {
            return Ok(None);
        };
        let url = self.url.join(&location).map_err(|why| {
            let why = format!("failed to parse Location header {location:?}: {why}");
            post_failed(&self.url, &why)
        })?;
        if self.number >= MAX_REQUESTS {
            let why = format!("stopped after {MAX_REQUESTS} redirects");
            return Err(post_failed(&location, &why));
        }
        // A review never leaves the protection of TLS, although a real server would send it over plain HTTP.
        if url.scheme() != "https" {
            let why = format!("unsupported protocol scheme {:?}", url.scheme());
            return Err(post_failed(&url, &why));
        }
        Ok(Some(Self {
            url,
            method,
            has_body,
            referer: Some(self.url.to_string()),
            number: self.number + 1,
        }))
    }
}

/// A failure of Go's HTTP client, which names the method of the first request.
pub(super) fn post_failed(url: &impl std::fmt::Display, why: &str) -> CallFailure {
    CallFailure::Failed(format!("Post \"{url}\": {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(status: u16, location: &str) -> Response<()> {
        let response = Response::builder().status(status);
        response.header(header::LOCATION, location).body(()).unwrap()
    }

    fn first() -> Hop {
        Hop::first(WebhookUrl::configured("https://h:1/a/b").with_query("timeout=10s"))
    }

    #[test]
    fn review_is_sent_again_or_dropped_by_the_status() {
        for (status, sent) in [
            (300, None),
            (301, Some("GET ")),
            (302, Some("GET ")),
            (303, Some("GET ")),
            (304, None),
            (305, None),
            (307, Some("POST review")),
            (308, Some("POST review")),
        ] {
            let next = first().next(&redirect(status, "/target")).unwrap();
            let next = next.map(|hop| hop.request(|| "review").unwrap());
            let shown = next
                .as_ref()
                .map(|next| format!("{} {}", next.method(), next.body()));
            assert_eq!(shown.as_deref(), sent, "{status}");
            if let Some(next) = next {
                assert_eq!(next.uri(), "/target");
                assert_eq!(next.headers()[header::REFERER], "https://h:1/a/b?timeout=10s");
                assert_eq!(next.headers().contains_key(header::CONTENT_TYPE), status >= 307);
            }
        }
        let without_location = Response::builder().status(307).body(()).unwrap();
        assert!(first().next(&without_location).unwrap().is_none());
        let dropped = first().next(&redirect(302, "/x")).unwrap().unwrap();
        let dropped = dropped.next(&redirect(307, "/y")).unwrap().unwrap();
        assert_eq!(
            dropped.request(|| "review").unwrap().body(),
            &"",
            "it stays dropped"
        );
    }

    #[test]
    fn redirect_that_cannot_be_followed_fails_with_the_words_of_go() {
        for (location, why) in [
            (
                "::bad",
                "Post \"https://h:1/a/b?timeout=10s\": failed to parse Location header \"::bad\": parse \"::bad\": missing \
                 protocol scheme",
            ),
            (
                "ftp://127.0.0.1/target",
                "Post \"ftp://127.0.0.1/target\": unsupported protocol scheme \"ftp\"",
            ),
            (
                "http://h/x",
                "Post \"http://h/x\": unsupported protocol scheme \"http\"",
            ),
        ] {
            let Err(CallFailure::Failed(message)) = first().next(&redirect(307, location)) else {
                panic!("{location} was followed");
            };
            assert_eq!(message, why);
        }
        let mut hop = first();
        let failure = loop {
            match hop.next(&redirect(307, "/loop")) {
                Ok(next) => hop = next.expect("a redirect"),
                Err(failure) => break failure,
            }
        };
        assert_eq!(hop.number, 10);
        let CallFailure::Failed(message) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(message, "Post \"/loop\": stopped after 10 redirects");
    }
}
