//! Dispatches requests for resources to the verbs.

use std::sync::Arc;

use http::{Response, request::Parts};
use tokio::sync::OwnedSemaphorePermit;
use windlass_api::request::RequestInfo;

use super::{Api, Server, in_flight::ReceivedBody, respond::respond};
use crate::{
    auth::Caller,
    body::Body,
    depth,
    media::{self, Encoding},
    patch::PatchKind,
    request::{Target, Verb},
    reviews,
    selector::Selector,
    status::Status,
    subresources::{self, SubresourceBody},
    verbs::{self, Answer, DeleteOptions, ListOptions, WatchStream, WriteOptions},
    view::View,
};

/// The cost of scanning one entry of a table, as a size in bytes: a thousand entries are large work.
const ENTRY_COST: usize = 64;

/// An answer, and the permit of its in-flight request.
type AnswerResult = Result<(Answer, Option<OwnedSemaphorePermit>), Status>;

impl Server {
    pub(super) async fn resource<B>(
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
        let verb = Verb::from_request(&parts.method, target, info)?;
        let wanted = Encoding::of_response(&parts.headers, target, verb == Verb::Watch)?;
        let list = matches!(verb, Verb::List | Verb::DeleteCollection);
        let view = View::negotiate(&parts.headers, &info.query, target, list)?;
        let request = ResourceRequest {
            server: self,
            parts,
            info,
            target,
            caller,
            verb,
        };
        let (answer, permit) = match verb {
            Verb::Get | Verb::List | Verb::Watch => request.read(view).await?,
            Verb::Create | Verb::Update | Verb::Patch => request.write(body).await?,
            Verb::Delete | Verb::DeleteCollection => request.delete(body).await?,
        };
        let size = match &answer {
            Answer::Object { json, .. } => json.len(),
            _ => 0,
        };
        let mut answer = Some(answer);
        let respond = || {
            let answer = answer.take().unwrap_or(Answer::NoContent);
            respond(answer, target, wanted, view, self.api.store.environment.now())
        };
        let mut response = request.work(size, respond).await?;
        response.body_mut().hold_permit(permit);
        Ok(response)
    }
}

/// An authorized request for a resource.
struct ResourceRequest<'a> {
    server: &'a Server,
    parts: &'a Parts,
    info: &'a RequestInfo,
    target: &'a Target,
    caller: &'a Arc<Caller>,
    verb: Verb,
}

impl ResourceRequest<'_> {
    async fn read(&self, view: View) -> AnswerResult {
        let (api, target, query) = (self.api(), self.target, &self.info.query);
        if self.verb == Verb::Get && *target.subresource == *"log" {
            return Ok((subresources::log(&api.writes, target, query)?, None));
        }
        if self.verb == Verb::Watch {
            let options = ListOptions::from_query(query, true)?;
            let permit = api.watch_permits.clone().try_acquire_owned();
            let permit = permit.map_err(|_| Status::busy())?;
            let selector = self.selector()?;
            let stream = WatchStream::open(permit, api.store.clone(), target, &options, selector, view)?;
            return Ok((Answer::Watch(Box::new(stream)), None));
        }
        let permit = self.acquire_permit()?;
        let answer = if self.verb == Verb::List {
            let (options, selector) = (ListOptions::from_query(query, false)?, self.selector()?);
            verbs::wait_for_list_revision(&api.store, &options).await?;
            let list = || verbs::list(&api.store, target, &options, &selector);
            self.work(self.scan_cost(), list).await?
        } else if target.is_object() {
            verbs::get(&api.store, target, query).await?
        } else {
            let options = WriteOptions::default();
            let part = || {
                subresources::subresource(&api.writes, target, self.verb, &options, &SubresourceBody::None)
            };
            self.work(0, part).await?
        };
        Ok((answer, permit))
    }

    async fn write<B>(&self, body: B) -> AnswerResult
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (api, target, headers) = (self.api(), self.target, &self.parts.headers);
        let kind = match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Patch => "PatchOptions",
            _ => "UpdateOptions",
        };
        let options = WriteOptions {
            caller: Some(self.caller.clone()),
            ..WriteOptions::from_request(&self.info.query, headers, kind)?
        };
        let is_object = match self.verb {
            Verb::Create => target.subresource.is_empty(),
            _ => target.is_object(),
        };
        // The real server checks the content type of an object before it reads the body, that of other subresources after.
        let form = || {
            Ok::<_, Status>(match self.verb {
                Verb::Patch => BodyKind::Patch(PatchKind::of_request(headers, &target.resource)?),
                _ => BodyKind::Object(Encoding::of_request(headers)?),
            })
        };
        let early = if is_object { Some(form()?) } else { None };
        let ReceivedBody { bytes, .. } = &self.server.receive(body, &self.caller.user).await?;
        let permit = self.acquire_permit()?;
        let size = bytes.len() + self.stored_size();
        let answer = match (early, self.verb) {
            (Some(BodyKind::Object(encoding)), Verb::Create) => {
                let create = || {
                    if reviews::is_review(&target.resource) {
                        reviews::review(&api.access, target, &options, bytes, encoding, self.caller)
                    } else if subresources::is_binding(&target.resource) {
                        subresources::bind_by_name(&api.writes, target, &options, bytes, encoding)
                    } else {
                        api.writes.create(target, &options, bytes, encoding)
                    }
                };
                self.work(size, create).await?
            }
            (Some(BodyKind::Object(encoding)), _) => {
                let update = || api.writes.update(target, &options, bytes, encoding);
                self.work(size, update).await?
            }
            (Some(BodyKind::Patch(kind)), _) => {
                let patch = || api.writes.patch(target, &options, bytes, kind);
                self.work(size, patch).await?
            }
            (None, verb) => {
                let input = match form()? {
                    BodyKind::Object(encoding) => SubresourceBody::Object(bytes.clone(), encoding),
                    BodyKind::Patch(kind) => SubresourceBody::Patch(bytes.clone(), kind),
                };
                let part = || subresources::subresource(&api.writes, target, verb, &options, &input);
                self.work(size, part).await?
            }
        };
        Ok((answer, permit))
    }

    async fn delete<B>(&self, body: B) -> AnswerResult
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (api, target, query) = (self.api(), self.target, &self.info.query);
        let body = self.server.receive(body, &self.caller.user).await?;
        let permit = self.acquire_permit()?;
        let is_one = self.verb == Verb::Delete;
        let size = if is_one {
            self.stored_size()
        } else {
            self.scan_cost()
        };
        let delete = || {
            let value = match &body.bytes[..] {
                [] => None,
                bytes => Some(media::decode_options(
                    bytes,
                    Encoding::of_request(&self.parts.headers)?,
                )?),
            };
            let options = DeleteOptions::from_request(query, value.as_ref())?;
            if is_one {
                return api.writes.delete(target, &options);
            }
            api.writes.delete_collection(
                target,
                &options,
                &ListOptions::from_query(query, false)?,
                &self.selector()?,
            )
        };
        let answer = self.work(size, delete).await?;
        Ok((answer, permit))
    }

    /// Like [`Server::work`], with a large stack if the body or the objects need one.
    async fn work<T: Send>(&self, size: usize, work: impl FnMut() -> T + Send) -> T {
        let deep = self.api().store.deep_tables.has(&self.target.resource.table);
        self.server.work(size, || depth::run(deep, work)).await
    }

    fn api(&self) -> &Arc<Api> {
        &self.server.api
    }

    fn acquire_permit(&self) -> Result<Option<OwnedSemaphorePermit>, Status> {
        self.api().in_flight.acquire(&self.caller.user, self.info)
    }

    fn selector(&self) -> Result<Selector, Status> {
        let query = &self.info.query;
        Selector::parse(
            query.text("labelSelector"),
            query.text("fieldSelector"),
            &self.target.resource,
        )
    }

    /// The cost of scanning the table.
    fn scan_cost(&self) -> usize {
        let table = self
            .api()
            .store
            .storage
            .snapshot(&self.target.resource.table, None);
        table.map_or(0, |table| table.count() * ENTRY_COST)
    }

    /// The size of the stored object; 0 if there is none.
    fn stored_size(&self) -> usize {
        if self.target.name.is_empty() {
            return 0;
        }
        let entry = self
            .api()
            .store
            .storage
            .get(&self.target.resource.table, &self.target.key());
        entry.map_or(0, |entry| entry.object.json().len())
    }
}

/// The kind of a body.
#[derive(Clone, Copy)]
enum BodyKind {
    Object(Encoding),
    Patch(PatchKind),
}
