//! From a path to what answers it.

use std::sync::Arc;

use http::{Method, Response, header, request::Parts};
use serde_json::json;
use windlass_rights::RequestInfo;

use super::{
    Server,
    documents::{self, OPENAPI, health, openapi_document},
    respond::{json_response, refusal, text_response, warn, with_body},
};
use crate::{
    auth::{self, Caller},
    body::Body,
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

/// What it takes to look at an entry of a table, as a size: a thousand of them are large work.
const ENTRY: usize = 64;

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
            Route::Groups { core } => {
                let _place = self.api.load.enter(&caller.user, info)?;
                self.work(usize::MAX, || documents::groups(&catalogue, core, parts))
                    .await
            }
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
                _ if path.starts_with("/openapi/") => {
                    let _place = self.api.load.enter(&caller.user, info)?;
                    let document = || match path {
                        "/openapi/v3" | "/openapi/v3/" => {
                            let index = openapi::index(&catalogue).to_string();
                            with_body(200, "text/plain; charset=utf-8", Body::whole(index))
                        }
                        "/openapi/v2" => documents::whole_openapi(&catalogue, parts),
                        _ if path.starts_with(OPENAPI) => openapi_document(&catalogue, parts, info),
                        _ => text_response(404, "404 page not found\n"),
                    };
                    self.work(usize::MAX, document).await
                }
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
        // The objects of a table count by what it takes to look at one, those that are changed by their bytes.
        let looked_at = || {
            let table = api.storage.snapshot(&target.resource.table, None);
            table.map_or(0, |table| table.count() * ENTRY)
        };
        let changed = || {
            let entry = api.storage.get(&target.resource.table, &target.key());
            entry.map_or(0, |entry| entry.object.json().len())
        };
        let user = &caller.user;
        let enter = || api.load.enter(user, info);
        let mut place = None;
        let answer = match verb {
            Verb::Get if *target.subresource == *"log" => api.log(target, query)?,
            Verb::Get if !matches!(&*target.subresource, "" | "status" | "approval") => {
                place = enter()?;
                let options = WriteOptions::default();
                self.on(target, 0, || {
                    api.subresource(target, verb, &options, &Input::None)
                })
                .await?
            }
            Verb::Get => {
                place = enter()?;
                api.get(target, query).await?
            }
            Verb::List => {
                place = enter()?;
                let (options, selector) = (ListOptions::of(query, false)?, selector()?);
                api.ready_for(&options).await?;
                self.on(target, looked_at(), || api.list(target, &options, &selector))
                    .await?
            }
            Verb::Watch => {
                let options = ListOptions::of(query, true)?;
                let place = api.watchers.clone().try_acquire_owned();
                Answer::Watch(Box::new(WatchStream::open(
                    place.map_err(|_| Status::busy())?,
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
                let body = self.receive(body, user).await?;
                place = enter()?;
                self.on(target, body.bytes.len(), || {
                    if auth::is_review(&target.resource) {
                        api.review(target, &options, &body.bytes, encoding, caller)
                    } else if subresources::is_binding(&target.resource) {
                        api.bind_by_name(target, &options, &body.bytes, encoding)
                    } else {
                        api.create(target, &options, &body.bytes, encoding)
                    }
                })
                .await?
            }
            Verb::Update if matches!(&*target.subresource, "" | "status" | "finalize" | "approval") => {
                let options = write_options("UpdateOptions")?;
                let encoding = Encoding::of_body(&parts.headers)?;
                let body = self.receive(body, user).await?;
                place = enter()?;
                let size = body.bytes.len() + changed();
                self.on(target, size, || {
                    api.update(target, &options, &body.bytes, encoding)
                })
                .await?
            }
            Verb::Patch if matches!(&*target.subresource, "" | "status" | "approval") => {
                let options = write_options("PatchOptions")?;
                let kind = PatchKind::of_body(&parts.headers, &target.resource)?;
                let body = self.receive(body, user).await?;
                place = enter()?;
                let size = body.bytes.len() + changed();
                self.on(target, size, || api.patch(target, &options, &body.bytes, kind))
                    .await?
            }
            Verb::Delete | Verb::DeleteCollection => {
                let body = self.receive(body, user).await?;
                place = enter()?;
                let size = if verb == Verb::Delete {
                    changed()
                } else {
                    looked_at()
                };
                self.on(target, size, || {
                    let value = match &body.bytes[..] {
                        [] => None,
                        bytes => Some(media::decode_options(bytes, Encoding::of_body(&parts.headers)?)?),
                    };
                    let options = DeleteOptions::of(query, value.as_ref())?;
                    if verb == Verb::Delete {
                        return api.delete(target, &options);
                    }
                    let list = ListOptions::of(query, false)?;
                    api.delete_collection(target, &options, &list, &selector()?)
                })
                .await?
            }
            Verb::Create | Verb::Update | Verb::Patch => {
                let options = write_options(match verb {
                    Verb::Create => "CreateOptions",
                    Verb::Patch => "PatchOptions",
                    _ => "UpdateOptions",
                })?;
                let body = self.receive(body, user).await?;
                place = enter()?;
                let bytes = body.bytes.clone();
                let input = if verb == Verb::Patch {
                    Input::Patch(bytes, PatchKind::of_body(&parts.headers, &target.resource)?)
                } else {
                    Input::Object(bytes, Encoding::of_body(&parts.headers)?)
                };
                let size = body.bytes.len() + changed();
                self.on(target, size, || api.subresource(target, verb, &options, &input))
                    .await?
            }
        };
        let size = match &answer {
            Answer::Object { json, .. } => json.len(),
            _ => 0,
        };
        let mut answer = Some(answer);
        let mut response = self
            .on(target, size, || {
                let answer = answer.take().unwrap_or(Answer::Nothing);
                api.respond(answer, target, wanted, view)
            })
            .await?;
        response.body_mut().keep(place);
        Ok(response)
    }
}
