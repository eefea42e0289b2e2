//! Dispatches requests for resources to the verbs.

use std::sync::{Arc, atomic::Ordering};

use http::{Response, request::Parts};
use windlass_api::request::RequestInfo;

use super::{Api, Server, in_flight::ReceivedBody, respond::respond};
use crate::{
    auth::Caller,
    body::Body,
    conversion, crd, depth,
    limits::{Deadline, Timeout},
    media::{self, Encoding},
    patch::PatchKind,
    permits::Permit,
    request::{Target, Verb},
    selector::Selector,
    status::{Missing, Status},
    storage::Revision,
    subresources::{self, SubresourceBody},
    verbs::{self, Answer, DeleteOptions, ListOptions, WatchStream, WriteOptions},
    view::View,
};

/// The cost of scanning one entry of a table, as a size in bytes: a thousand entries are large work.
const ENTRY_COST: usize = 64;

/// The further cost of an entry that may have to be converted, to compare a field.
const CONVERSION_COST: usize = 4 * 1024;

/// How often a verb runs for one request: each mutating webhook needs a run, and each change of the object by others.
const MAX_RUNS: usize = 1_000;

/// An answer, and the permit of its in-flight request.
type AnswerResult = Result<(Answer, Option<Permit>), Status>;

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
        if subresources::is_forwarded(&target.subresource) {
            return Err(Box::pin(self.refuse_connection(target, "", info, caller)).await);
        }
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
            deadline: Timeout::of(&info.access.verb, info.query.text("timeout"))?.deadline(),
        };
        let (answer, permit) = match verb {
            Verb::Get | Verb::List | Verb::Watch => request.read(view).await?,
            Verb::Create | Verb::Update | Verb::Patch => request.write(body).await?,
            Verb::Delete | Verb::DeleteCollection => request.delete(body).await?,
        };
        let size = match &answer {
            Answer::Object { json, .. } => json.len(),
            // The first piece. Objects that are only copied are shared bytes, and few are copied at a time.
            Answer::List { page, .. } if view != View::Object || wanted != Encoding::Json => page.bytes(),
            _ => 0,
        };
        // Only another view or encoding parses an object. In a list, deep objects are handled one by one.
        let is_deep = match &answer {
            Answer::Object { json, .. } if target.resource.is_custom => {
                (view != View::Object || wanted != Encoding::Json) && depth::of_json(json) > depth::SHALLOW
            }
            _ => false,
        };
        let mut answer = Some(answer);
        let respond = || {
            let answer = answer.take().unwrap_or(Answer::NoContent);
            let environment = &self.api.store.environment;
            let large_work = (&self.large_work, &caller.user);
            respond(answer, target, wanted, view, environment, large_work)
        };
        let mut response = self
            .work(&caller.user, size, || depth::run(is_deep, respond))
            .await?;
        response.body_mut().hold_permit(permit);
        Ok(response)
    }
}

impl Server {
    /// The answer to a request for a connection to a pod, a service or a node. Like a real server's, it passes admission
    /// first, and needs an object that exists.
    pub(super) async fn refuse_connection(
        &self,
        target: &Target,
        path: &str,
        info: &RequestInfo,
        caller: &Arc<Caller>,
    ) -> Status {
        let (api, part) = (&self.api, &*target.subresource);
        let refuse = || {
            let options = subresources::connection_options(part, &info.query, path);
            let warnings = api.writes.admission.admit_connection(target, caller, options)?;
            let exists = api.store.current(target).map(drop);
            let refused = exists.and_then(|()| subresources::reject_forwarded(&target.resource.plural, part));
            refused.map_err(|status: Status| status.with_warnings(&warnings))
        };
        let answer = async {
            let _permit = api.in_flight.acquire_write(&caller.user)?;
            let deadline = Timeout::DEFAULT.deadline();
            self.run(caller, deadline, (0, false), refuse).await
        };
        answer.await.err().unwrap_or_else(Status::no_such_resource)
    }

    /// Runs a verb for a request, and again when it has what it needs from webhooks. Takes the size of the work, and whether it
    /// needs a large stack.
    async fn run<T: Send>(
        &self,
        caller: &Caller,
        deadline: Deadline,
        (size, is_deep): (usize, bool),
        mut verb: impl FnMut() -> Result<T, Status> + Send,
    ) -> Result<T, Status> {
        let (webhooks, answers) = (&self.api.webhooks, &caller.answers);
        let large_work = self.large_work.of(&caller.user);
        // What was converted stays in the cache of its CRD until the request ends.
        let mut converted = Vec::new();
        let mut needs_time = false;
        for _ in 0..MAX_RUNS {
            answers.begin_run();
            let size = if needs_time {
                usize::MAX
            } else {
                size.saturating_add(answers.size())
            };
            let delays_others = !needs_time && large_work.delays_others(size);
            caller.must_be_brief.store(delays_others, Ordering::Relaxed);
            let work = || depth::run(is_deep, &mut verb);
            let mut status = match self.work(&caller.user, size, work).await {
                Err(status) if status.is_unfinished() => status,
                done => return done,
            };
            answers.drop_unread();
            // Boxed, so that requests without webhooks are small.
            match status.take_missing() {
                Some(Missing::Answers(calls)) => {
                    let answer = webhooks.answer(calls, deadline.at, answers, &large_work);
                    Box::pin(answer).await;
                    deadline.check()?;
                }
                Some(Missing::Converted(entries)) => {
                    let convert = entries.convert(webhooks, deadline.at, &large_work);
                    let entries = Box::pin(convert).await;
                    deadline.check()?;
                    converted.push(entries?);
                }
                Some(Missing::Time) => needs_time = true,
                None => return Err(status),
            }
        }
        Err(Status::internal(format!(
            "webhooks were asked {MAX_RUNS} times, and have to be asked again"
        )))
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
    /// When the request times out.
    deadline: Deadline,
}

impl ResourceRequest<'_> {
    async fn read(&self, view: View) -> AnswerResult {
        let (api, target, query) = (self.api(), self.target, &self.info.query);
        if self.verb == Verb::Get && *target.subresource == *"log" {
            let (limits, user) = (&api.in_flight, &self.caller.user);
            let permit = if query.flag("follow") {
                limits.acquire_watch(user, self.info)?
            } else {
                limits.acquire_read(user)?
            };
            let log = || subresources::log(&api.writes, target, query);
            return Ok((self.work(self.stored_size(), log).await?, permit));
        }
        if self.verb == Verb::Watch {
            let options = ListOptions::from_query(query, true)?;
            let permit = api.in_flight.acquire_watch(&self.caller.user, self.info)?;
            let cost = if options.wants_initial_events() {
                self.scan_cost()
            } else {
                0
            };
            let open = || {
                let opened = api.metrics.open_watch(target);
                let large_work = self.server.large_work.of(&self.caller.user);
                WatchStream::open(
                    opened,
                    (api.store.clone(), api.webhooks.clone()),
                    target,
                    &options,
                    self.selector()?,
                    view,
                    large_work,
                )
            };
            let stream = self.run(cost, open).await?;
            return Ok((Answer::Watch(Box::new(stream)), permit));
        }
        if self.verb == Verb::List {
            let (options, selector) = (ListOptions::from_query(query, false)?, self.selector()?);
            self.wait_for_revision(options.required_revision()).await?;
            let permit = self.acquire_permit()?;
            let list = || verbs::list(&api.store, target, &options, &selector);
            return Ok((self.run(self.scan_cost(), list).await?, permit));
        }
        if target.is_object() {
            self.wait_for_revision(verbs::required_revision(query)?).await?;
        }
        let permit = self.acquire_permit()?;
        let answer = if target.is_object() {
            // Others are only looked up.
            let size = if target.resource.is_custom || conversion::needs_conversion(&target.resource) {
                self.stored_size()
            } else {
                0
            };
            self.get(size).await?
        } else {
            let options = WriteOptions {
                caller: Some(self.caller.clone()),
                ..WriteOptions::default()
            };
            let part = || {
                subresources::subresource(&api.writes, target, self.verb, &options, &SubresourceBody::None)
            };
            self.run(self.stored_size(), part).await?
        };
        Ok((answer, permit))
    }

    /// Gets an object. Most are only looked up, which needs neither another stack nor a webhook.
    async fn get(&self, size: usize) -> Result<Answer, Status> {
        let get = || verbs::get(&self.api().store, self.target, self.caller);
        if crd::has_webhook(&self.target.resource) {
            return self.run(size, get).await;
        }
        match self.server.work(&self.caller.user, size, get).await {
            Err(status) if status.is_unfinished() => self.run(size, get).await,
            done => done,
        }
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
        let size = if self.is_slow() {
            usize::MAX
        } else {
            bytes.len() + self.stored_size() + subresources::scanned_bytes(&api.store, target)
        };
        let answer = match (early, self.verb) {
            (Some(BodyKind::Object(encoding)), Verb::Create) => {
                let create = || {
                    if let Some(kind) = target.resource.strategy.as_review() {
                        let body = (&bytes[..], encoding);
                        let chain = (&api.writes.admission, &**self.caller);
                        verbs::review(kind, &api.access, target, &options, body, chain)
                    } else if subresources::is_binding(&target.resource) {
                        subresources::bind_by_name(&api.writes, target, &options, bytes, encoding)
                    } else {
                        api.writes.create(target, &options, bytes, encoding)
                    }
                };
                self.run(size, create).await?
            }
            (Some(BodyKind::Object(encoding)), _) => {
                let update = || api.writes.update(target, &options, bytes, encoding);
                self.run(size, update).await?
            }
            (Some(BodyKind::Patch(kind)), _) => {
                let patch = || api.writes.patch(target, &options, bytes, kind);
                self.run(size, patch).await?
            }
            (None, verb) => {
                let input = match form()? {
                    BodyKind::Object(encoding) => SubresourceBody::Object(bytes.clone(), encoding),
                    BodyKind::Patch(kind) => SubresourceBody::Patch(bytes.clone(), kind),
                };
                let part = || subresources::subresource(&api.writes, target, verb, &options, &input);
                self.run(size, part).await?
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
        let size = if api.writes.admission.is_slow(&target.resource) {
            usize::MAX
        } else if is_one {
            self.stored_size()
        } else {
            self.scan_cost()
        };
        let mut deleting = None;
        let delete = || {
            let value = match &body.bytes[..] {
                [] => None,
                bytes => Some(media::decode_options(
                    bytes,
                    Encoding::of_request(&self.parts.headers)?,
                )?),
            };
            let options = DeleteOptions {
                caller: Some(self.caller.clone()),
                ..DeleteOptions::from_request(query, value.as_ref())?
            };
            if is_one {
                return api.writes.delete(target, &options);
            }
            api.writes.delete_collection(
                target,
                &options,
                &ListOptions::from_query(query, false)?,
                &self.selector()?,
                &mut deleting,
            )
        };
        let answer = self.run(size, delete).await?;
        Ok((answer, permit))
    }

    /// Like [`Server::run`], with a large stack if the body or the objects need one.
    async fn run<T: Send>(
        &self,
        size: usize,
        verb: impl FnMut() -> Result<T, Status> + Send,
    ) -> Result<T, Status> {
        let is_deep = self.changes_deep_object();
        self.server
            .run(self.caller, self.deadline, (size, is_deep), verb)
            .await
    }

    /// Like [`Server::work`], with a large stack if the body or the objects need one.
    async fn work<T: Send>(&self, size: usize, work: impl FnMut() -> T + Send) -> T {
        let work = || depth::run(self.changes_deep_object(), work);
        self.server.work(&self.caller.user, size, work).await
    }

    /// Whether the object that the request is about, or one that it may delete, needs a large stack.
    fn changes_deep_object(&self) -> bool {
        let resource = &self.target.resource;
        if !resource.is_custom {
            return false;
        }
        let storage = &self.api().store.storage;
        if self.verb == Verb::DeleteCollection {
            let table = storage.snapshot(&resource.table, None, None);
            return table.is_ok_and(|table| table.range(None, None).any(|entry| entry.object.is_deep()));
        }
        !self.target.name.is_empty()
            && storage
                .get(&resource.table, &self.target.key())
                .is_some_and(|entry| entry.object.is_deep())
    }

    fn api(&self) -> &Arc<Api> {
        &self.server.api
    }

    /// Waits for a revision that the client has seen. This holds no permit of a read, which others need more.
    async fn wait_for_revision(&self, revision: Option<Revision>) -> Result<(), Status> {
        let store = &self.api().store;
        match revision {
            Some(revision) if revision > store.storage.revision() => {
                let _waiting = self.api().in_flight.acquire_wait(&self.caller.user)?;
                store.wait_for_revision(revision).await
            }
            _ => Ok(()),
        }
    }

    fn acquire_permit(&self) -> Result<Option<Permit>, Status> {
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

    /// The cost of scanning the table: each entry is compared with each term of the selectors.
    fn scan_cost(&self) -> usize {
        let query = &self.info.query;
        let length = |key| query.text(key).map_or(0, str::len);
        let field_terms = length("fieldSelector");
        let mut entry_cost = ENTRY_COST + length("labelSelector") + field_terms;
        if field_terms > 0 && self.target.resource.is_custom {
            entry_cost += CONVERSION_COST;
        }
        let table = self
            .api()
            .store
            .storage
            .snapshot(&self.target.resource.table, None, None);
        table.map_or(0, |table| table.count().saturating_mul(entry_cost))
    }

    /// Whether a write may take long, whatever its size.
    fn is_slow(&self) -> bool {
        let (api, resource) = (self.api(), &self.target.resource);
        // Those of roles, bindings and reviews depend on all roles of the caller, or of the user that a review is about.
        let depends_on_roles = resource.facts.grants_rights || resource.strategy.as_review().is_some();
        (depends_on_roles && api.access.policy.is_some())
            || resource.facts.compiles
            || resource.has_slow_rules()
            || api.writes.admission.is_slow(resource)
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
