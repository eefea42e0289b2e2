//! Routes a request by its path.

use std::sync::{Arc, OnceLock};

use http::{Method, Response, header, request::Parts};
use serde::Serialize;
use serde_json::json;
use windlass_api::request::{AccessTarget, RequestInfo};

use super::{
    Server,
    documents::{self, OPENAPI_V3_PREFIX, health, openapi_document},
    metrics,
    respond::{add_warning, body_response, error_response, json_response, text_response},
};
use crate::{
    auth::Caller,
    body::Body,
    media::Encoding,
    openapi,
    permits::Permit,
    registry::{self, Catalogue},
    request::{Route, Target},
    request_metrics::RequestTarget,
    status::Status,
    subresources,
};

impl Server {
    pub(super) async fn route<B>(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        body: B,
        caller: &Arc<Caller>,
        counted_as: &OnceLock<RequestTarget>,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = &*info.path;
        let catalogue = self.api.store.registry.catalogue();
        let route = Route::resolve(info, &catalogue);
        let read_only = match &route {
            Route::Resource(_) | Route::NoSuchResource | Route::Unusable => false,
            Route::Other => path.starts_with("/version"),
            _ => true,
        };
        if read_only && parts.method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        if let Route::Resource(target) = &route {
            counted_as.get_or_init(|| RequestTarget::of(target));
        }
        match route {
            Route::Resource(target) if target.has_no_method(&parts.method) => {
                Ok(text_response(404, "404 page not found\n"))
            }
            Route::Resource(target) => {
                let answer = self.resource(parts, info, &target, body, caller).await;
                match target.resource.deprecation() {
                    Some(warning) => {
                        let failed = |status| error_response(&status, Encoding::of_error(&parts.headers));
                        Ok(with_first_warning(answer.unwrap_or_else(failed), warning))
                    }
                    None => answer,
                }
            }
            Route::Groups { core } => {
                let permit = self.api.in_flight.acquire(&caller.user, info)?;
                let groups = || documents::groups(&catalogue, core, parts);
                let answer = self.work(&caller.user, usize::MAX, groups).await;
                answer.map(|answer| holding(permit, answer))
            }
            Route::Group(name) => {
                documents::group(catalogue.group(&name).expect("the route found it"), parts)
            }
            Route::Version(group, version) => documents::version(&catalogue, &group, &version, parts),
            Route::Unusable => Err(Status::internal("error resolving resource")),
            Route::NoSuchResource => Err(self.refuse_unknown(&catalogue, info, caller).await),
            Route::Other => Ok(match path {
                "/version" | "/version/" => indented(registry::version()),
                "/healthz" | "/livez" | "/readyz" => {
                    // Any value of `verbose` enables it.
                    health(path, !info.query.all("verbose").is_empty())
                }
                "/metrics" => {
                    let permit = self.api.in_flight.acquire(&caller.user, info)?;
                    let render = || metrics::render(&self.api);
                    let text = self.work(&caller.user, usize::MAX, render).await;
                    holding(
                        permit,
                        body_response(200, metrics::CONTENT_TYPE, Body::whole(text)),
                    )
                }
                "/healthz/ping" | "/livez/ping" | "/readyz/ping" => text_response(200, "ok"),
                _ if path.starts_with("/openapi/") => {
                    let permit = self.api.in_flight.acquire(&caller.user, info)?;
                    let document = || match path {
                        "/openapi/v3" | "/openapi/v3/" => {
                            let index = openapi::index(&catalogue).to_string();
                            body_response(200, "text/plain; charset=utf-8", Body::whole(index))
                        }
                        "/openapi/v2" => documents::openapi_v2(&catalogue, parts),
                        _ if path.starts_with(OPENAPI_V3_PREFIX) => {
                            openapi_document(&catalogue, parts, info, self.api.store.environment.now())
                        }
                        _ => text_response(404, "404 page not found\n"),
                    };
                    holding(permit, self.work(&caller.user, usize::MAX, document).await)
                }
                "/" => indented(
                    &json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
                ),
                _ => text_response(404, "404 page not found\n"),
            }),
        }
    }

    /// The answer to a request for a resource that does not exist. A path below `proxy` is not one of the server's own.
    async fn refuse_unknown(
        &self,
        catalogue: &Catalogue,
        info: &RequestInfo,
        caller: &Arc<Caller>,
    ) -> Status {
        let AccessTarget::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } = &info.access.target
        else {
            return Status::no_such_resource();
        };
        if !subresources::is_forwarded(subresource) {
            return Status::no_such_resource();
        }
        let found = catalogue.find(group, version, resource);
        if let Some(found) = found.filter(|_| !name.is_empty()) {
            let target = Target {
                resource: found.clone(),
                namespace: namespace.as_str().into(),
                name: name.as_str().into(),
                subresource: subresource.as_str().into(),
            };
            let marker = format!("/{name}/{subresource}");
            let start = info.path.find(&marker);
            let rest = start.map_or("", |start| &info.path[start + marker.len()..]);
            return Box::pin(self.refuse_connection(&target, rest, info, caller)).await;
        }
        let refused = subresources::reject_forwarded(resource, subresource);
        refused.err().unwrap_or_else(Status::no_such_resource)
    }
}

/// A response with this warning before its others.
fn with_first_warning(mut response: Response<Body>, warning: &str) -> Response<Body> {
    let others: Vec<_> = response
        .headers()
        .get_all(header::WARNING)
        .iter()
        .cloned()
        .collect();
    response.headers_mut().remove(header::WARNING);
    add_warning(&mut response, warning);
    for other in others {
        response.headers_mut().append(header::WARNING, other);
    }
    response
}

/// An answer that counts as a read until it is sent.
fn holding(permit: Option<Permit>, mut answer: Response<Body>) -> Response<Body> {
    answer.body_mut().hold_permit(permit);
    answer
}

/// A document that the real server indents.
fn indented(document: &impl Serialize) -> Response<Body> {
    let json = serde_json::to_string_pretty(document).expect("keys are strings");
    json_response(200, json.into())
}
