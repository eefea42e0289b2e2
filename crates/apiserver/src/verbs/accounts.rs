//! The account of every write: `metadata.managedFields` of what is about to be written.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value};

use super::{Api, WriteOptions, apply};
use crate::{
    fields::{Managed, OnConflict, Replicas, ReplicasPath, SCALE, Set, Shape, Versions, Writer},
    object::{Account, Object},
    registry::{self, Catalogue, Resource},
    schema::{self, Schema, Source},
    status::Status,
    versions,
};

/// The versions of a kind, as those know it who wrote its objects.
pub(super) struct Kinds<'a> {
    catalogue: Arc<Catalogue>,
    resource: &'a Resource,
    version: String,
    subresource: &'a str,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(api: &Api, resource: &'a Resource, subresource: &'a str) -> Self {
        Self {
            catalogue: api.registry.catalogue(),
            resource,
            version: resource.api_version(),
            subresource,
        }
    }

    fn at(&self, version: &str) -> Option<&Resource> {
        if version == self.version {
            return Some(self.resource);
        }
        let others = self.catalogue.resources.iter();
        others
            .map(|resource| &**resource)
            .find(|other| other.table == self.resource.table && other.api_version() == version)
    }

    /// A write of these objects that is to be accounted for.
    pub(super) fn writer<'w>(&'w self, name: &'w str, now: &'w str) -> Writer<'w, Self> {
        Writer {
            name,
            version: &self.version,
            subresource: self.subresource,
            now,
            versions: self,
        }
    }
}

impl Versions for Kinds<'_> {
    fn shape<'s>(&'s self, version: &str) -> Option<Shape<'s>> {
        let resource = self.at(version)?;
        Some(Shape::of_resource(
            resource.schema.as_ref().map(Schema::view),
            resource.custom,
        ))
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let to = self.at(version)?;
        let from = self.at(object["apiVersion"].as_str().unwrap_or_default())?;
        let mut object = Object::new(object.clone())?;
        if to.custom {
            // Fields that the other version lacks stay, as the real server has it.
            object.fields_mut().insert("apiVersion".into(), version.into());
            return Some(object.into_tree());
        }
        versions::to_stored(from, &mut object);
        Some(versions::as_shown(object, to).into_tree())
    }

    fn reset(&self, version: &str) -> Set<'static> {
        let resource = self.at(version).unwrap_or(self.resource);
        Set::of_paths(resource.reset_fields(self.subresource))
    }
}

impl Replicas for Kinds<'_> {
    fn path(&self, version: &str) -> ReplicasPath<'_> {
        let Some(resource) = self.at(version) else {
            return ReplicasPath::Unknown;
        };
        let pointer = match &resource.scale {
            Some(paths) => &*paths.wanted,
            None if resource.custom => return ReplicasPath::Nowhere,
            None => "/spec/replicas",
        };
        ReplicasPath::At(pointer.trim_start_matches('/').split('/').collect())
    }
}

/// Why the Scale of a custom resource cannot be changed by apply: the real server takes it for the custom resource.
const NOT_A_SCALE: &str = "request to convert CR to an invalid group/version: autoscaling/v1";

/// A Scale has one version, and what is written to it is all its writer's.
struct ScaleKind;

impl Versions for ScaleKind {
    fn shape<'s>(&'s self, version: &str) -> Option<Shape<'s>> {
        (version == SCALE).then(|| Shape::of_resource(Some(registry::scale().view()), false))
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }

    fn reset(&self, _: &str) -> Set<'static> {
        Set::default()
    }
}

/// An object of which nothing is set, as the real server makes one before it looks at what it was sent.
pub(super) fn blank(resource: &Resource) -> &Value {
    resource.blank.get_or_init(|| {
        let mut blank = Value::Object(Map::new());
        if let Some(schema) = resource.schema.as_ref().filter(|_| !resource.custom) {
            // Nothing always fits.
            let _ = schema::decode(schema.view(), &mut blank, Source::Json);
        }
        blank["apiVersion"] = resource.api_version().into();
        blank["kind"] = resource.kind.to_string().into();
        blank
    })
}

impl Api {
    /// Accounts for a new object.
    pub(crate) fn account_for_new(&self, resource: &Resource, options: &WriteOptions, object: &mut Object) {
        let kinds = Kinds::new(self, resource, "");
        let now = self.world.now_text();
        let said = object.take_account();
        let writer = kinds.writer(&options.manager, &now);
        let blank = blank(resource);
        let account = match Said::of(&said) {
            Said::Account(said) => writer
                .update(blank, object.tree(), || said.clone())
                .map(|updated| updated.unwrap_or(said).write()),
            _ => writer.account_for_new(blank, object.tree()),
        };
        object.set_account(Account::kept(account.unwrap_or_default()));
    }

    /// Accounts for a new state of an object.
    pub(crate) fn account_for(
        &self,
        resource: &Resource,
        subresource: &str,
        options: &WriteOptions,
        object: &mut Object,
        old: &Object,
    ) {
        let kinds = Kinds::new(self, resource, subresource);
        let now = self.world.now_text();
        let said = object.take_account();
        // Who writes to a part of the object has no say in it.
        let said = if subresource.is_empty() && said != *old.account() {
            Said::of(&said)
        } else {
            Said::Nothing
        };
        let kept = match &said {
            Said::Nothing => Cow::Borrowed(old.account().text()),
            Said::Forget => Cow::Borrowed(""),
            Said::Account(said) => Cow::Owned(said.clone().write()),
        };
        let managed = || match said {
            Said::Nothing => Managed::read(old.account().text()),
            Said::Forget => Managed::default(),
            Said::Account(said) => said,
        };
        let updated = kinds
            .writer(&options.manager, &now)
            .update(old.tree(), object.tree(), managed)
            .map(|updated| updated.map_or_else(|| kept.into_owned(), Managed::write));
        object.set_account(Account::kept(updated.unwrap_or_default()));
    }
}

/// What a client says of who owns what.
enum Said<'a> {
    /// Nothing, or what cannot be understood.
    Nothing,
    /// That nobody owns anything: an empty list, or one empty entry.
    Forget,
    Account(Managed<'a>),
}

impl<'a> Said<'a> {
    fn of(account: &'a Account) -> Self {
        let managed = match account {
            Account::None => return Self::Nothing,
            Account::Kept(json) => Managed::read(json),
            Account::Said(said) => match said.as_array().map(Vec::as_slice) {
                Some([]) => return Self::Forget,
                Some([Value::Object(entry)]) if entry.is_empty() => return Self::Forget,
                _ => Managed::of_client(said).unwrap_or_default(),
            },
        };
        if managed.is_empty() {
            return Self::Nothing;
        }
        Self::Account(managed)
    }
}

impl Api {
    /// The account of an object whose scale becomes another one.
    pub(crate) fn account_for_scale(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        account: &Account,
        [old, new]: [&Value; 2],
    ) -> Account {
        let kinds = Kinds::new(self, resource, "scale");
        let now = self.world.now_text();
        let parent = Managed::read(account.text());
        let scale = parent.to_scale(&kinds);
        let updated = scale_writer(&options.manager, &now).update(old, new, || scale.clone());
        let scale = updated.map(|updated| updated.unwrap_or(scale));
        let scale = scale.unwrap_or_default();
        Account::kept(parent.after_scale(scale, &kinds.version, &kinds).write())
    }
}

impl Api {
    /// What a scale and its object's account become when a configuration is applied to it.
    pub(crate) fn applied_scale(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        account: &Account,
        live: &Value,
        config: &Value,
    ) -> Result<(Value, Account), Status> {
        apply::check_kind(config, SCALE, "Scale")?;
        let kinds = Kinds::new(self, resource, "scale");
        let now = self.world.now_text();
        let parent = Managed::read(account.text());
        let mut scale = parent.to_scale(&kinds);
        let blank = serde_json::json!({"kind": "Scale", "apiVersion": SCALE, "metadata": {}, "spec": {},
            "status": {"replicas": 0}});
        if scale.is_empty() && resource.custom {
            return Err(Status::unexplained(format!(
                "failed to create manager for existing fields: failed to convert live object (/; {SCALE}, Kind=Scale) to \
                 proper version: {NOT_A_SCALE}"
            )));
        }
        if scale.is_empty() {
            scale = scale_writer(apply::BEFORE, &now)
                .create(&blank, live)
                .unwrap_or_default();
        }
        let on_conflict = if options.force {
            OnConflict::Force
        } else {
            OnConflict::Refuse
        };
        let applied = scale_writer(&options.manager, &now)
            .apply(live, config, scale, &on_conflict)
            .map_err(|refused| apply::refusal(&refused, config))?;
        if resource.custom && applied.object.is_some() {
            return Err(Status::unexplained(format!(
                "failed to convert new object ({}) to proper version: {NOT_A_SCALE}",
                apply::described(config)
            )));
        }
        let account = parent
            .after_scale(applied.managed, &kinds.version, &kinds)
            .write();
        Ok((
            applied.object.unwrap_or_else(|| live.clone()),
            Account::kept(account),
        ))
    }
}

fn scale_writer<'a>(name: &'a str, now: &'a str) -> Writer<'a, ScaleKind> {
    Writer {
        name,
        version: SCALE,
        subresource: "scale",
        now,
        versions: &ScaleKind,
    }
}

/// Leaves times as they are where nothing else has changed.
pub(super) fn keep_times(object: &mut Object, old: &Object) {
    if object.account() == old.account() || object.tree() != old.tree() {
        return;
    }
    let (new, known) = (
        Managed::read(object.account().text()),
        Managed::read(old.account().text()),
    );
    if new.is_same_but_for_times(&known) {
        object.set_account(old.account().clone());
    }
}
