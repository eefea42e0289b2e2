//! From a request for objects to the verb that answers it.

use std::sync::Arc;

use http::{Response, request::Parts};
use tokio::sync::OwnedSemaphorePermit;
use windlass_rights::RequestInfo;

use super::{Server, work::Received};
use crate::{
    auth::{self, Caller},
    body::Body,
    depth,
    media::{self, Encoding},
    patch::PatchKind,
    request::{Target, Verb},
    selector::Selector,
    status::Status,
    subresources::{self, Input},
    verbs::{Answer, Api, DeleteOptions, ListOptions, WatchStream, WriteOptions},
    view::View,
};

/// What it takes to look at an entry of a table, as a size: a thousand of them are large work.
const ENTRY: usize = 64;

/// An answer, and the request's place among those that are worked on.
type Answered = Result<(Answer, Option<OwnedSemaphorePermit>), Status>;

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
        let verb = Verb::of(&parts.method, target, info)?;
        let wanted = Encoding::of_answer(&parts.headers, &target.resource, verb == Verb::Watch)?;
        let list = matches!(verb, Verb::List | Verb::DeleteCollection);
        let view = View::of(&parts.headers, &info.query, &target.resource, list)?;
        let asked = Asked {
            server: self,
            parts,
            info,
            target,
            caller,
            verb,
        };
        let (answer, place) = match verb {
            Verb::Get | Verb::List | Verb::Watch => asked.read(view).await?,
            Verb::Create | Verb::Update | Verb::Patch => asked.write(body).await?,
            Verb::Delete | Verb::DeleteCollection => asked.delete(body).await?,
        };
        let size = match &answer {
            Answer::Object { json, .. } => json.len(),
            _ => 0,
        };
        let mut answer = Some(answer);
        let respond = || {
            let answer = answer.take().unwrap_or(Answer::Nothing);
            self.api.respond(answer, target, wanted, view)
        };
        let mut response = asked.work(size, respond).await?;
        response.body_mut().keep(place);
        Ok(response)
    }
}

/// A request for objects that its caller may make.
struct Asked<'a> {
    server: &'a Server,
    parts: &'a Parts,
    info: &'a RequestInfo,
    target: &'a Target,
    caller: &'a Arc<Caller>,
    verb: Verb,
}

impl Asked<'_> {
    async fn read(&self, view: View) -> Answered {
        let (api, target, query) = (self.api(), self.target, &self.info.query);
        if self.verb == Verb::Get && *target.subresource == *"log" {
            return Ok((api.log(target, query)?, None));
        }
        if self.verb == Verb::Watch {
            let options = ListOptions::of(query, true)?;
            let place = api.watchers.clone().try_acquire_owned();
            let place = place.map_err(|_| Status::busy())?;
            let selector = self.selector()?;
            let stream = WatchStream::open(place, api.clone(), target, &options, selector, view)?;
            return Ok((Answer::Watch(Box::new(stream)), None));
        }
        let place = self.enter()?;
        let answer = if self.verb == Verb::List {
            let (options, selector) = (ListOptions::of(query, false)?, self.selector()?);
            api.ready_for(&options).await?;
            let list = || api.list(target, &options, &selector);
            self.work(self.looked_at(), list).await?
        } else if matches!(&*target.subresource, "" | "status" | "approval") {
            api.get(target, query).await?
        } else {
            let options = WriteOptions::default();
            let part = || api.subresource(target, self.verb, &options, &Input::None);
            self.work(0, part).await?
        };
        Ok((answer, place))
    }

    async fn write<B>(&self, body: B) -> Answered
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
            ..WriteOptions::of(&self.info.query, headers, kind)?
        };
        let is_object = match self.verb {
            Verb::Create => target.subresource.is_empty(),
            Verb::Update => matches!(&*target.subresource, "" | "status" | "finalize" | "approval"),
            _ => matches!(&*target.subresource, "" | "status" | "approval"),
        };
        // The type of an object's body is looked at before the body, that of another part's after it.
        let form = || {
            Ok::<_, Status>(match self.verb {
                Verb::Patch => Form::Patch(PatchKind::of_body(headers, &target.resource)?),
                _ => Form::Object(Encoding::of_body(headers)?),
            })
        };
        let early = if is_object { Some(form()?) } else { None };
        let Received { bytes, .. } = &self.server.receive(body, &self.caller.user).await?;
        let place = self.enter()?;
        let size = bytes.len() + self.changed();
        let answer = match (early, self.verb) {
            (Some(Form::Object(encoding)), Verb::Create) => {
                let create = || {
                    if auth::is_review(&target.resource) {
                        api.review(target, &options, bytes, encoding, self.caller)
                    } else if subresources::is_binding(&target.resource) {
                        api.bind_by_name(target, &options, bytes, encoding)
                    } else {
                        api.create(target, &options, bytes, encoding)
                    }
                };
                self.work(size, create).await?
            }
            (Some(Form::Object(encoding)), _) => {
                let update = || api.update(target, &options, bytes, encoding);
                self.work(size, update).await?
            }
            (Some(Form::Patch(kind)), _) => {
                let patch = || api.patch(target, &options, bytes, kind);
                self.work(size, patch).await?
            }
            (None, verb) => {
                let input = match form()? {
                    Form::Object(encoding) => Input::Object(bytes.clone(), encoding),
                    Form::Patch(kind) => Input::Patch(bytes.clone(), kind),
                };
                let part = || api.subresource(target, verb, &options, &input);
                self.work(size, part).await?
            }
        };
        Ok((answer, place))
    }

    async fn delete<B>(&self, body: B) -> Answered
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (api, target, query) = (self.api(), self.target, &self.info.query);
        let body = self.server.receive(body, &self.caller.user).await?;
        let place = self.enter()?;
        let is_one = self.verb == Verb::Delete;
        let size = if is_one { self.changed() } else { self.looked_at() };
        let delete = || {
            let value = match &body.bytes[..] {
                [] => None,
                bytes => Some(media::decode_options(
                    bytes,
                    Encoding::of_body(&self.parts.headers)?,
                )?),
            };
            let options = DeleteOptions::of(query, value.as_ref())?;
            if is_one {
                return api.delete(target, &options);
            }
            api.delete_collection(
                target,
                &options,
                &ListOptions::of(query, false)?,
                &self.selector()?,
            )
        };
        let answer = self.work(size, delete).await?;
        Ok((answer, place))
    }

    /// As [`Server::work`], with as much stack as the body or the objects need.
    async fn work<T: Send>(&self, size: usize, work: impl FnMut() -> T + Send) -> T {
        let deep = self.api().deep.has(&self.target.resource.table);
        self.server.work(size, || depth::run(deep, work)).await
    }

    fn api(&self) -> &Arc<Api> {
        &self.server.api
    }

    fn enter(&self) -> Result<Option<OwnedSemaphorePermit>, Status> {
        self.api().load.enter(&self.caller.user, self.info)
    }

    fn selector(&self) -> Result<Selector, Status> {
        let query = &self.info.query;
        Selector::parse(
            query.text("labelSelector"),
            query.text("fieldSelector"),
            &self.target.resource,
        )
    }

    /// How much work it is to look through the table.
    fn looked_at(&self) -> usize {
        let table = self.api().storage.snapshot(&self.target.resource.table, None);
        table.map_or(0, |table| table.count() * ENTRY)
    }

    /// The size of the object that is changed, if it is there.
    fn changed(&self) -> usize {
        if self.target.name.is_empty() {
            return 0;
        }
        let entry = self
            .api()
            .storage
            .get(&self.target.resource.table, &self.target.key());
        entry.map_or(0, |entry| entry.object.json().len())
    }
}

/// What a body is.
#[derive(Clone, Copy)]
enum Form {
    Object(Encoding),
    Patch(PatchKind),
}
