//! From a path to what answers it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use windlass_rights::RequestInfo;

use super::{
    Server,
    documents::{self, OPENAPI, health, openapi_document},
    respond::{json_response, refusal, text_response, too_many_requests, warn, with_body},
};
use crate::{
    auth::{self, Caller},
    body::Body,
    limits,
    media::{self, Encoding},
    openapi,
    patch::PatchKind,
    registry,
    request::{Route, Target, Verb},
    selector::Selector,
    status::Status,
    subresources::{self, Input},
    verbs::{Answer, DeleteOptions, ListOptions, WatchStream, WriteOptions},
    view::View,
};

impl Server {
    pub(super) async fn route<B>(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        body: B,
        caller: &Arc<Caller>,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = &*info.path;
        let catalogue = self.api.registry.catalogue();
        let as_json = |value: &serde_json::Value| json_response(200, value.to_string().into());
        let route = Route::of(info, &catalogue);
        let read_only = match &route {
            Route::Resource(_) | Route::NoSuchResource => false,
            Route::Other => path.starts_with("/version"),
            _ => true,
        };
        if read_only && parts.method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        match route {
            Route::Resource(target) if target.is_nowhere(&parts.method) => {
                Ok(text_response(404, "404 page not found\n"))
            }
            Route::Resource(target) => {
                let answer = self.resource(parts, info, &target, body, caller).await;
                let Some(warning) = target
                    .resource
                    .defined
                    .as_ref()
                    .and_then(|d| d.warning.as_deref())
                else {
                    return answer;
                };
                // A deprecated version says so whatever the answer is.
                let mut response =
                    answer.unwrap_or_else(|status| refusal(&status, Encoding::of_refusal(&parts.headers)));
                let others: Vec<_> = response
                    .headers()
                    .get_all(header::WARNING)
                    .iter()
                    .cloned()
                    .collect();
                response.headers_mut().remove(header::WARNING);
                warn(&mut response, warning);
                for other in others {
                    response.headers_mut().append(header::WARNING, other);
                }
                Ok(response)
            }
            Route::Groups { core } => documents::groups(&catalogue, core, parts),
            Route::Group(name) => {
                documents::group(catalogue.group(&name).expect("the route found it"), parts)
            }
            Route::Version(group, version) => documents::version(&catalogue, &group, &version, parts),
            Route::NoSuchResource => Err(Status::no_such_resource()),
            Route::Other => Ok(match path {
                "/version" | "/version/" => as_json(registry::version()),
                "/healthz" | "/livez" | "/readyz" => {
                    // A health check is verbose if it is asked at all.
                    health(path, !info.query.all("verbose").is_empty())
                }
                "/healthz/ping" | "/livez/ping" | "/readyz/ping" => text_response(200, "ok"),
                "/openapi/v3" | "/openapi/v3/" => {
                    let index = openapi::index(&catalogue).to_string();
                    with_body(200, "text/plain; charset=utf-8", Body::whole(index))
                }
                "/openapi/v2" => documents::whole_openapi(&catalogue, parts),
                _ if path.starts_with(OPENAPI) => openapi_document(&catalogue, parts, info),
                "/" => as_json(
                    &json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
                ),
                _ => text_response(404, "404 page not found\n"),
            }),
        }
    }

    async fn resource<B>(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        target: &Target,
        body: B,
        caller: &Arc<Caller>,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let query = &info.query;
        let verb = Verb::of(&parts.method, target, info)?;
        let wanted = Encoding::of_answer(&parts.headers, &target.resource, verb == Verb::Watch)?;
        let list = matches!(verb, Verb::List | Verb::DeleteCollection);
        let view = View::of(&parts.headers, query, &target.resource, list)?;
        let selector = || {
            Selector::parse(
                query.text("labelSelector"),
                query.text("fieldSelector"),
                &target.resource,
            )
        };
        let api = &self.api;
        let write_options = |kind: &str| {
            let options = WriteOptions::of(query, &parts.headers, kind)?;
            let caller = Some(caller.clone());
            Ok::<_, Status>(WriteOptions { caller, ..options })
        };
        let answer = match verb {
            Verb::Get if *target.subresource == *"log" => api.log(target, query)?,
            Verb::Get if !matches!(&*target.subresource, "" | "status" | "approval") => {
                api.subresource(target, verb, &WriteOptions::default(), &Input::None)?
            }
            Verb::Get => api.get(target, query).await?,
            Verb::List => {
                api.list(target, &ListOptions::of(query, false)?, &selector()?)
                    .await?
            }
            Verb::Watch => {
                let options = ListOptions::of(query, true)?;
                let Ok(place) = api.watchers.clone().try_acquire_owned() else {
                    return Ok(too_many_requests());
                };
                Answer::Watch(Box::new(WatchStream::open(
                    place,
                    api.clone(),
                    target,
                    &options,
                    selector()?,
                    view,
                )?))
            }
            Verb::Create if target.subresource.is_empty() => {
                let options = write_options("CreateOptions")?;
                let encoding = Encoding::of_body(&parts.headers)?;
                if auth::is_review(&target.resource) {
                    api.review(target, &options, &collect(body).await?, encoding, caller)?
                } else if subresources::is_binding(&target.resource) {
                    api.bind_by_name(target, &options, &collect(body).await?, encoding)?
                } else {
                    api.create(target, &options, &collect(body).await?, encoding)?
                }
            }
            Verb::Update if matches!(&*target.subresource, "" | "status" | "finalize" | "approval") => {
                let options = write_options("UpdateOptions")?;
                let encoding = Encoding::of_body(&parts.headers)?;
                api.update(target, &options, &collect(body).await?, encoding)?
            }
            Verb::Patch if matches!(&*target.subresource, "" | "status" | "approval") => {
                let options = write_options("PatchOptions")?;
                let kind = PatchKind::of_body(&parts.headers, &target.resource)?;
                api.patch(target, &options, &collect(body).await?, kind)?
            }
            Verb::Delete | Verb::DeleteCollection => {
                let bytes = collect(body).await?;
                let value = match &bytes[..] {
                    [] => None,
                    bytes => Some(media::decode_options(bytes, Encoding::of_body(&parts.headers)?)?),
                };
                let options = DeleteOptions::of(query, value.as_ref())?;
                if verb == Verb::Delete {
                    api.delete(target, &options)?
                } else {
                    api.delete_collection(target, &options, &ListOptions::of(query, false)?, &selector()?)?
                }
            }
            Verb::Create | Verb::Update | Verb::Patch => {
                let options = write_options(match verb {
                    Verb::Create => "CreateOptions",
                    Verb::Patch => "PatchOptions",
                    _ => "UpdateOptions",
                })?;
                let input = if verb == Verb::Patch {
                    Input::Patch(
                        collect(body).await?,
                        PatchKind::of_body(&parts.headers, &target.resource)?,
                    )
                } else {
                    Input::Object(collect(body).await?, Encoding::of_body(&parts.headers)?)
                };
                api.subresource(target, verb, &options, &input)?
            }
        };
        api.respond(answer, target, wanted, view)
    }
}

async fn collect<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, limits::BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(limits::BODY)),
        Err(error) => Err(Status::bad_request(format!(
            "the body could not be read: {error}"
        ))),
    }
}
