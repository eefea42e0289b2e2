//! Conversion of custom resources between the storage version and the requested version.
//!
//! An object is stored in one version, pruned and defaulted by that version's schema of that time. A client may request
//! another version, and the schema may have changed since. So every stored object carries the hash of the schema it was
//! written with. A read with the same schema shares the stored bytes; any other read converts the object:
//!
//! ```text
//!   stored ─► pruned and defaulted by its version's current schema ─► apiVersion of the requested version
//!          ─► pruned by the requested version's schema
//! ```
//!
//! With a conversion webhook, the middle step is its answer. A read of an object that it has not converted yet ends with a
//! status that makes the server ask ([`Unconverted`]), and runs again; a write gets its two conversions, to the storage
//! version and back, before it is committed ([`WriteConversion`]).

mod cache;
mod webhook;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use self::{
    cache::{Failure, Known},
    webhook::ConversionWebhook,
};
use super::{
    definition::selectable_fields,
    embedded::{OnMalformed, coerce_embedded},
    spec, text, versions,
};
use crate::{
    auth::Caller,
    depth,
    kinds::SelectableField,
    large_work::LargeWork,
    limits,
    object::Object,
    registry::{Resource, group_version},
    schema::{Patterns, Schema, SchemaView, drop_nulls, fill_defaults, prune_object},
    status::Status,
    storage::{Entry, Key, Revision},
    webhook::{Answers, Share, WebhookClient, size_of},
};

/// Converts the objects of a CRD.
#[derive(Debug)]
pub(crate) struct Conversion {
    group: Box<str>,
    storage_version: Box<str>,
    /// All versions, served or not.
    by_version: HashMap<Box<str>, VersionSchema>,
    webhook: Option<ConversionWebhook>,
}

#[derive(Debug)]
struct VersionSchema {
    schema: Schema,
    selectable_fields: Vec<SelectableField>,
    schema_hash: u64,
    /// The place in `spec.versions`.
    place: usize,
}

impl Conversion {
    pub(super) fn from_crd(crd: &Object) -> Result<Self, String> {
        let mut patterns = Patterns::default();
        let webhook = ConversionWebhook::parse(&spec(crd)["conversion"]);
        let mut version_schema = |(place, version): (usize, &Value)| -> Result<VersionSchema, String> {
            let document = &version["schema"]["openAPIV3Schema"];
            let selectable_fields = selectable_fields(spec(crd), version);
            let mut hasher = DefaultHasher::new();
            (document.to_string(), &selectable_fields).hash(&mut hasher);
            // Without a webhook, versions with the same schema have the same objects.
            if webhook.is_some() {
                text(&version["name"]).hash(&mut hasher);
            }
            Ok(VersionSchema {
                schema: Schema::from_crd_version(document, &mut patterns)?,
                selectable_fields,
                // Zero means that the schema is unknown.
                schema_hash: hasher.finish().max(1),
                place,
            })
        };
        Ok(Self {
            group: text(&spec(crd)["group"]).into(),
            storage_version: text(&super::storage_version(crd)).into(),
            by_version: versions(crd)
                .iter()
                .enumerate()
                .map(|(place, version)| {
                    Ok((text(&version["name"]).into(), version_schema((place, version))?))
                })
                .collect::<Result<_, String>>()?,
            webhook,
        })
    }

    pub(super) fn stored_version(&self) -> &str {
        &self.storage_version
    }

    /// The schema of a version such as `example.com/v1`, served or not. `None` if the CRD has no such version.
    pub(crate) fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.version_schema(api_version).map(|version| &version.schema)
    }

    /// The place of a version such as `v1` in `spec.versions`.
    pub(crate) fn place_of(&self, version: &str) -> Option<usize> {
        self.by_version.get(version).map(|version| version.place)
    }

    /// The schema of a version such as `v1`.
    pub(super) fn schema_of(&self, version: &str) -> Option<&Schema> {
        self.by_version.get(version).map(|version| &version.schema)
    }

    fn version_schema(&self, api_version: &str) -> Option<&VersionSchema> {
        let (group, version) = api_version.rsplit_once('/')?;
        self.by_version.get(version).filter(|_| *group == *self.group)
    }
}

/// How to convert an entry to the resource's version; `None` if it needs no conversion.
fn needed_conversion<'a>(
    resource: &'a Resource,
    entry: &Entry,
) -> Option<(&'a Arc<Conversion>, &'a VersionSchema)> {
    let conversion = &resource.crd.as_ref()?.conversion;
    let wanted = conversion.by_version.get(&resource.version)?;
    (entry.object.schema_hash() != wanted.schema_hash).then_some((conversion, wanted))
}

/// Whether an entry differs from what the resource's version shows.
pub(crate) fn needs_conversion(resource: &Resource, entry: &Entry) -> bool {
    needed_conversion(resource, entry).is_some()
}

/// Converts an entry to the resource's version, if needed. An error if a webhook has to be asked first.
pub(crate) fn convert_for_read(resource: &Resource, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
    let Some((conversion, wanted)) = needed_conversion(resource, &entry) else {
        return Ok(entry);
    };
    if let Some(webhook) = conversion.webhook_for(&entry, resource) {
        let converted = webhook.converted.get(&entry, &resource.version);
        return converted.ok_or_else(|| {
            Status::unconverted(Unconverted {
                conversion: conversion.clone(),
                version: resource.version.clone(),
                entries: vec![entry],
            })
        });
    }
    if entry.object.is_deep() {
        return Ok(depth::with_large_stack(|| {
            convert_entry(resource, conversion, wanted, entry)
        }));
    }
    Ok(convert_entry(resource, conversion, wanted, entry))
}

/// Converts an entry to the resource's version for one request, with the answers that it has from a webhook. Without a request,
/// what a webhook converts stays as it is.
pub(crate) fn convert_for_request(
    resource: &Resource,
    entry: Arc<Entry>,
    answers: Option<&Answers>,
) -> Result<Arc<Entry>, Status> {
    let Some((conversion, wanted)) = needed_conversion(resource, &entry) else {
        return Ok(entry);
    };
    let Some(webhook) = conversion.webhook_for(&entry, resource) else {
        return convert_for_read(resource, entry);
    };
    let Some(answers) = answers else {
        return Ok(entry);
    };
    let mut object = webhook.convert(conversion.decode(&entry)?, &resource.api_version(), answers)?;
    coerce(wanted.schema.view(), &mut object);
    let object = object.encode(entry.revision, &wanted.selectable_fields);
    Ok(Arc::new(Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        object: object.with_schema_hash(wanted.schema_hash),
    }))
}

/// Whether a webhook converts objects of this resource.
pub(crate) fn has_webhook(resource: &Resource) -> bool {
    let conversion = resource.crd.as_ref().map(|defined| &defined.conversion);
    conversion.is_some_and(|conversion| conversion.webhook.is_some())
}

impl Conversion {
    /// The webhook, if it is what converts an entry to the resource's version.
    fn webhook_for(&self, entry: &Entry, resource: &Resource) -> Option<&ConversionWebhook> {
        let webhook = self.webhook.as_ref()?;
        let stored = stored_api_version(entry);
        let is_same = stored
            .rsplit_once('/')
            .is_none_or(|(group, version)| *group == *self.group && *version == *resource.version);
        (!is_same).then_some(webhook)
    }

    /// A stored object as its version's current schema shows it.
    fn decode(&self, entry: &Entry) -> Result<Object, Status> {
        let mut object = entry.object.decode()?;
        if let Some(stored) = self.version_schema(object.text_at("apiVersion").as_str()) {
            coerce(stored.schema.view(), &mut object);
            fill_defaults(stored.schema.view(), object.fields_mut());
        }
        Ok(object)
    }
}

/// The API version of a stored object, from the beginning of its JSON.
fn stored_api_version(entry: &Entry) -> &str {
    const KEY: &[u8] = b"\"apiVersion\":\"";
    let json = entry.object.json();
    let head = &json[..json.len() - entry.object.without_type().len()];
    let value = memchr::memmem::find(head, KEY).map(|start| &head[start + KEY.len()..]);
    let end = value.and_then(|value| memchr::memchr(b'"', value));
    let text = value.zip(end).map(|(value, end)| &value[..end]);
    std::str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
}

/// How many objects, and how many bytes of them, a webhook converts with one call.
const MAX_BATCH: usize = 200;
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// Entries that a webhook has to convert to a version first.
#[derive(Clone, Debug)]
pub(crate) struct Unconverted {
    conversion: Arc<Conversion>,
    version: Box<str>,
    entries: Vec<Arc<Entry>>,
}

impl Unconverted {
    /// Adds those that need the same conversion. Others are missed again, once these are converted.
    pub(crate) fn extend(&mut self, others: Self) {
        if Arc::ptr_eq(&self.conversion, &others.conversion) && self.version == others.version {
            self.entries.extend(others.entries);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Asks the webhook. The entries stay in its cache at least as long as the result. What another reader asks about
    /// now is not asked twice, unless that reader gives up.
    pub(crate) async fn convert(
        &self,
        client: &WebhookClient,
        deadline: Instant,
        large_work: &LargeWork,
    ) -> Result<Vec<Arc<Entry>>, Status> {
        let mut converted = Vec::with_capacity(self.entries.len());
        for entries in self.entries.chunks(MAX_BATCH) {
            let mut missing = entries.to_vec();
            while !missing.is_empty() {
                let left = self.convert_chunk(&missing, &mut converted, (client, deadline, large_work));
                missing = left.await?;
                if !missing.is_empty() && Instant::now() >= deadline {
                    return Err(Status::timeout());
                }
            }
        }
        Ok(converted)
    }

    /// Asks about those of these entries about which no other reader asks now, then waits for the others. Returns those that
    /// are still not converted.
    async fn convert_chunk(
        &self,
        entries: &[Arc<Entry>],
        converted: &mut Vec<Arc<Entry>>,
        (client, deadline, large_work): (&WebhookClient, Instant, &LargeWork),
    ) -> Result<Vec<Arc<Entry>>, Status> {
        let Some(webhook) = &self.conversion.webhook else {
            return Err(Status::internal("the resource has no conversion webhook"));
        };
        let mut others = Vec::new();
        {
            let (known, question) = webhook.converted.ask(entries, &self.version);
            let mut unknown = Vec::new();
            for (entry, known) in known {
                match known {
                    Known::Converted(entry) => converted.push(entry),
                    Known::Asked(asked) => others.push((entry.clone(), asked)),
                    Known::Unknown => unknown.push(entry.clone()),
                }
            }
            let asked = self.convert_all(&unknown, converted, (client, deadline, large_work));
            if let Err(failure) = asked.await {
                let status = failure.status.clone();
                // At the deadline, it is the request that ended, not the webhook that failed.
                if status.is_failed_conversion() && Instant::now() < deadline {
                    question.fail(failure);
                }
                return Err(status);
            }
        }
        let mut missing = Vec::new();
        for (entry, mut asked) in others {
            // Closed when the question has ended.
            if let Ok(Ok(())) = timeout_at(deadline, asked.changed()).await
                && let Some(failure) = &*asked.borrow()
                && failure.applies_to(entries)
            {
                return Err(failure.status.clone());
            }
            match webhook.converted.get(&entry, &self.version) {
                Some(entry) => converted.push(entry),
                None => missing.push(entry),
            }
        }
        Ok(missing)
    }

    async fn convert_all(
        &self,
        mut rest: &[Arc<Entry>],
        converted: &mut Vec<Arc<Entry>>,
        (client, deadline, large_work): (&WebhookClient, Instant, &LargeWork),
    ) -> Result<(), Failure> {
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|entry| {
                bytes += entry.object.json().len();
                bytes <= MAX_BATCH_BYTES
            });
            let (batch, later) = rest.split_at(fitting.count().max(1));
            rest = later;
            let answered = self.convert_batch(client, batch, deadline, large_work).await;
            converted.extend(answered.map_err(|status| Failure::new(status, batch))?);
        }
        Ok(())
    }

    async fn convert_batch(
        &self,
        client: &WebhookClient,
        entries: &[Arc<Entry>],
        deadline: Instant,
        large_work: &LargeWork,
    ) -> Result<Vec<Arc<Entry>>, Status> {
        let conversion = &self.conversion;
        let parts = conversion
            .webhook
            .as_ref()
            .zip(conversion.by_version.get(&self.version));
        let Some((webhook, version_schema)) = parts else {
            return Err(Status::internal("the resource has no conversion webhook"));
        };
        let decode = |entry: &Arc<Entry>| {
            let mut object = conversion.decode(entry)?;
            object.metadata_mut().remove("resourceVersion");
            Ok::<_, Status>(object)
        };
        let decode_all = || entries.iter().map(decode).collect::<Result<Vec<_>, _>>();
        let wanted = group_version(&conversion.group, &self.version);
        let is_deep = entries.iter().any(|entry| entry.object.is_deep());
        let size = entries.iter().map(|entry| entry.object.json().len()).sum();
        let ask = || {
            let objects = decode_all()?;
            let call = webhook.call(&objects, &wanted);
            // Deep objects do not leave the large stack.
            Ok::<_, Status>((call, (!depth::has_large_stack()).then_some(objects)))
        };
        let (call, mut decoded) = large_work.run(size, || depth::run(is_deep, ask)).await?;
        let answer = client.ask(call, deadline, large_work).await;
        let read = || {
            let objects = decoded.take().map_or_else(decode_all, Ok)?;
            let converted = webhook.read(&answer, objects, &wanted)?;
            let pairs = converted.into_iter().zip(entries);
            let entries = pairs.map(|(object, entry)| {
                let place = (&entry.key, entry.revision);
                let share = Some(client.share(large_work.user()));
                version_schema.entry(webhook, &self.version, object, place, share)
            });
            entries
                .map(|entry| entry.map_err(|_| Status::too_many_responses()))
                .collect()
        };
        let size = size + answer.size();
        large_work.run(size, || depth::run(is_deep, read)).await
    }
}

impl VersionSchema {
    /// The hash of the schema, if an object has the form that it has when it is read. One that was written in another version may
    /// lack defaults of this one, which are applied whenever it is read: then 0.
    fn hash_if_complete(&self, object: &Object) -> u64 {
        let mut read = object.clone();
        coerce(self.schema.view(), &mut read);
        fill_defaults(self.schema.view(), read.fields_mut());
        if read.tree() == object.tree() {
            self.schema_hash
        } else {
            0
        }
    }

    /// The entry of an object that a webhook has converted to this version, which is then in the cache, and counts as held by a
    /// user as long as it exists. An error with the entry if there is no room for it: it is not in the cache then.
    fn entry(
        &self,
        webhook: &ConversionWebhook,
        version: &str,
        mut object: Object,
        (key, revision): (&Key, Revision),
        share: Option<Share>,
    ) -> Result<Arc<Entry>, Arc<Entry>> {
        coerce(self.schema.view(), &mut object);
        let object = object.encode(revision, &self.selectable_fields);
        let mut entry = Entry {
            key: key.clone(),
            revision,
            object: object.with_schema_hash(self.schema_hash),
        };
        let size = size_of(&entry);
        let counted = share.and_then(|mut share| share.grow(size).then_some(share));
        let Some(share) = counted else {
            return Err(Arc::new(entry));
        };
        let budget = share.budget().clone();
        entry.object = entry.object.with_permit(share.into_permit());
        let entry = Arc::new(entry);
        webhook.converted.add(version, &entry);
        budget.keep(&entry);
        Ok(entry)
    }
}

/// Converts an object of a request to another version of its resource.
pub(crate) fn convert_between(
    from: &Resource,
    to: &Resource,
    mut object: Object,
    answers: &Answers,
) -> Result<Object, Status> {
    let conversion = from.crd.as_ref().map(|defined| &defined.conversion);
    let Some(conversion) = conversion.filter(|conversion| conversion.webhook.is_some()) else {
        set_version(&mut object, &to.api_version());
        return Ok(object);
    };
    let mut object = convert_by_webhook(from, object, &to.api_version(), answers)?;
    if let Some(version_schema) = conversion.by_version.get(&to.version) {
        coerce(version_schema.schema.view(), &mut object);
    }
    Ok(object)
}

/// Lets the webhook of a resource convert an object of a request to this API version.
pub(crate) fn convert_by_webhook(
    resource: &Resource,
    object: Object,
    wanted: &str,
    answers: &Answers,
) -> Result<Object, Status> {
    let conversion = resource.crd.as_ref().map(|defined| &defined.conversion);
    match conversion.and_then(|conversion| conversion.webhook.as_ref()) {
        Some(webhook) => webhook.convert(object, wanted, answers),
        None => Err(Status::internal("the resource has no conversion webhook")),
    }
}

/// The conversion of an object that is written: what is stored, and what its writer gets.
pub(crate) enum WriteConversion {
    /// They are computed with the commit.
    Computed,
    /// The object has the form in which it is stored: the server's own writes ask no webhook.
    Stored,
    /// A webhook has converted them.
    Converted {
        stored: Box<Object>,
        shown: Box<Object>,
        /// What the writer's request holds of the budget for webhooks, without bytes.
        share: Option<Share>,
    },
}

impl WriteConversion {
    /// What is stored for this object.
    pub(crate) fn stored<'a>(&'a self, object: &'a Object) -> &'a Object {
        match self {
            Self::Converted { stored, .. } => stored,
            Self::Computed | Self::Stored => object,
        }
    }

    /// What a dry run answers: the object as its writer would get it.
    pub(crate) fn shown(self, resource: &Resource, object: Object) -> Object {
        let Self::Converted { mut shown, .. } = self else {
            return object;
        };
        let conversion = resource.crd.as_ref().map(|defined| &defined.conversion);
        if let Some(form) = conversion.and_then(|conversion| conversion.by_version.get(&resource.version)) {
            coerce(form.schema.view(), &mut shown);
        }
        *shown
    }

    /// Rejects what a webhook has made of an object if it cannot be stored.
    pub(crate) fn check_storable(&self, resource: &Resource) -> Result<(), Status> {
        match self {
            Self::Converted { stored, .. } => limits::check_storable(resource, stored),
            Self::Computed | Self::Stored => Ok(()),
        }
    }

    /// The conversion of an object at the resource's version. An error if a webhook has to be asked first, with the answers of
    /// the request.
    pub(crate) fn of(resource: &Resource, object: &Object, caller: Option<&Caller>) -> Result<Self, Status> {
        let Some(conversion) = resource.crd.as_ref().map(|defined| &defined.conversion) else {
            return Ok(Self::Computed);
        };
        let Some(webhook) = &conversion.webhook else {
            return Ok(Self::Computed);
        };
        if caller.is_some() && resource.version == conversion.storage_version {
            return Ok(Self::Computed);
        }
        let Some(version_schema) = conversion.by_version.get(&conversion.storage_version) else {
            return Ok(Self::Computed);
        };
        let Some(caller) = caller else {
            return Ok(Self::Stored);
        };
        let stored_version = group_version(&conversion.group, &conversion.storage_version);
        let mut stored = webhook.convert(object.clone(), &stored_version, &caller.answers)?;
        coerce(version_schema.schema.view(), &mut stored);
        let mut read = stored.clone();
        fill_defaults(version_schema.schema.view(), read.fields_mut());
        let shown = webhook.convert(read, &resource.api_version(), &caller.answers)?;
        Ok(Self::Converted {
            stored: stored.into(),
            shown: shown.into(),
            share: caller.answers.share(),
        })
    }
}

/// The entry that the writer of a converted object gets.
pub(crate) fn written_entry(
    resource: &Resource,
    (shown, share): (Object, Option<Share>),
    entry: &Arc<Entry>,
) -> Arc<Entry> {
    let conversion = resource.crd.as_ref().map(|defined| &defined.conversion);
    let parts = conversion.and_then(|conversion| {
        Some((
            conversion.webhook.as_ref()?,
            conversion.by_version.get(&resource.version)?,
        ))
    });
    let Some((webhook, version_schema)) = parts else {
        return entry.clone();
    };
    let place = (&entry.key, entry.revision);
    let written = version_schema.entry(webhook, &resource.version, shown, place, share);
    // Its writer gets it, also if it is not kept.
    written.unwrap_or_else(|uncounted| uncounted)
}

fn convert_entry(
    resource: &Resource,
    conversion: &Conversion,
    wanted: &VersionSchema,
    entry: Arc<Entry>,
) -> Arc<Entry> {
    let mut object = match conversion.decode(&entry) {
        Ok(object) => object,
        Err(error) => {
            tracing::error!(
                error = error.message(),
                "cannot convert a stored object; returning it in its storage version"
            );
            return entry;
        }
    };
    set_version(&mut object, &resource.api_version());
    coerce(wanted.schema.view(), &mut object);
    let object = object.encode(entry.revision, &wanted.selectable_fields);
    Arc::new(Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        object: object.with_schema_hash(wanted.schema_hash),
    })
}

/// The selectable fields of an object that stays in the version in which it is stored, and the hash of its schema. It is 0 if the
/// object has to be pruned or defaulted when it is read.
pub(crate) fn stored_form<'a>(resource: &'a Resource, object: &Object) -> (&'a [SelectableField], u64) {
    let conversion = resource.crd.as_ref().map(|defined| &defined.conversion);
    let version_schema =
        conversion.and_then(|conversion| conversion.version_schema(&object.text_at("apiVersion")));
    version_schema.map_or((&resource.selectable_fields, 0), |version_schema| {
        let hash = version_schema.hash_if_complete(object);
        (&version_schema.selectable_fields, hash)
    })
}

/// Converts an object to the storage version. Returns that version's selectable fields and its schema hash; `None` for
/// built-in kinds.
pub(crate) fn convert_to_stored<'a>(
    resource: &'a Resource,
    object: &mut Object,
) -> Option<(&'a [SelectableField], u64)> {
    let conversion = &resource.crd.as_ref()?.conversion;
    let version_schema = conversion.by_version.get(&conversion.storage_version)?;
    set_version(
        object,
        &group_version(&conversion.group, &conversion.storage_version),
    );
    let same = conversion
        .by_version
        .get(&resource.version)
        .is_some_and(|own| own.schema_hash == version_schema.schema_hash);
    if !same {
        coerce(version_schema.schema.view(), object);
    }
    let hash = if same {
        version_schema.schema_hash
    } else {
        version_schema.hash_if_complete(object)
    };
    Some((&version_schema.selectable_fields, hash))
}

fn set_version(object: &mut Object, version: &str) {
    object.fields_mut().insert("apiVersion".into(), version.into());
}

/// Prunes an object and drops malformed parts of embedded resources.
fn coerce(schema: SchemaView<'_>, object: &mut Object) {
    let fields = object.fields_mut();
    prune_object(schema, fields);
    drop_nulls(schema, fields);
    // Dropping malformed parts never fails.
    let _ = coerce_embedded(schema, fields, OnMalformed::Drop);
}

/// Sets the default of the status of a new object whose status was dropped, because it is a subresource. The real server
/// applies defaults whenever it reads an object from its storage, with the schema of the storage version.
pub(crate) fn set_default_status(resource: &Resource, object: &mut Object) {
    let Some(defined) = &resource.crd else { return };
    if !resource.has_status() || object.fields().contains_key("status") {
        return;
    }
    let conversion = &defined.conversion;
    if let Some(stored) = conversion.by_version.get(&conversion.storage_version) {
        let mut defaults = Map::new();
        fill_defaults(stored.schema.view(), &mut defaults);
        if let Some(status) = defaults.remove("status") {
            object.fields_mut().insert("status".into(), status);
        }
    }
}
