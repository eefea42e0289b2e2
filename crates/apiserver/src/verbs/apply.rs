//! Server-side apply: a configuration says what its applier wants, and nothing of the rest.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    Answer, Api, RACES, WriteOptions,
    accounts::{Kinds, blank},
    conform::{conform, judge},
    prepare::{check_revision, named, place},
    rendered,
    update::check_current,
};
use crate::{
    fields::{Applied, Managed, OnConflict, Refused, Set, Unaccountable, Versions, compare, extract},
    json,
    object::{Account, Object},
    patch::PatchKind,
    registry::Resource,
    request::Target,
    status::Status,
    storage::Entry,
    versions, yaml,
};

/// The applier that is taken to be kubectl, and to know what it wrote before there was server-side apply.
const KUBECTL: &str = "kubectl";

/// Where kubectl keeps what it wrote then.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who is said to own what was there before anything was applied.
pub(super) const BEFORE: &str = "before-first-apply";

impl Api {
    pub(super) fn apply(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &Bytes,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let Configuration { config, repeated } = Configuration::read(body)?;
        let kinds = Kinds::new(self, resource, &target.subresource);
        for _ in 0..RACES {
            let entry = self.current(target).ok();
            let old = entry
                .as_ref()
                .map(|entry| versions::shown(entry, resource))
                .transpose()?;
            check_kind(&config, &resource.api_version(), &resource.kind)?;
            let now = self.world.now_text();
            if let (Some(entry), Some(old)) = (&entry, &old)
                && repeated.is_empty()
                && self.is_plain(resource, entry)
                && last_applied(old).is_none()
                && kinds
                    .writer(&options.manager, &now)
                    .is_repeated(old.tree(), &config, old.account().text())
            {
                return Ok(Answer::Object {
                    code: 200,
                    json: rendered(entry, resource),
                    warnings: Vec::new(),
                });
            }
            let live = old.as_ref().map_or_else(|| blank(resource), Object::tree);
            let mut managed = Managed::read(old.as_ref().map_or("", |old| old.account().text()));
            if managed.is_empty() && old.is_some() {
                let before = kinds.writer(BEFORE, &now).create(blank(resource), live);
                managed = before.map_err(|Unaccountable(why)| {
                    Status::unexplained(format!("failed to create manager for existing fields: {why}"))
                })?;
            }
            let allowed = old
                .as_ref()
                .filter(|_| &*options.manager == KUBECTL)
                .and_then(last_applied);
            let allowed = allowed
                .as_ref()
                .and_then(|last| allowed_by(&kinds, &resource.api_version(), last, live));
            let on_conflict = match &allowed {
                _ if options.force => OnConflict::Force,
                Some(allowed) => OnConflict::Allow(allowed),
                None => OnConflict::Refuse,
            };
            let applied = kinds
                .writer(&options.manager, &now)
                .apply(live, &config, managed, &on_conflict)
                .map_err(|refused| refusal(&refused, &config))?;
            let Applied { object, managed } = applied;
            let account = Account::kept(managed.write());
            let value = object.unwrap_or_else(|| live.clone());
            let (mut object, _) = conform(value, resource, PatchKind::Apply.source()).map_err(|why| {
                Status::unexplained(format!(
                    "failed to convert new object ({}) to proper version: {why}",
                    described(&config)
                ))
            })?;
            object.set_account(account);
            if &*options.manager == KUBECTL {
                note_applied(&mut object, &config);
            }
            let warnings = judge(repeated.clone(), options.field_validation).map_err(|_| {
                Status::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                    repeated.join("\n  ")
                ))
            })?;
            let (Some(entry), Some(old)) = (entry, old) else {
                match self.apply_new(target, options, object, warnings) {
                    // Somebody else has made it in between.
                    Err(status) if status.code == 409 && self.current(target).is_ok() => continue,
                    answer => return answer,
                }
            };
            named(&object, target)?;
            place(&mut object, target)?;
            let said = object.meta("resourceVersion");
            check_revision(said)?;
            check_current(said, &entry, target)?;
            if let Some(answer) = self.replace(target, options, &entry, &old, object, warnings)? {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Whether what is stored is what is seen, at this version and with the schema of now.
    fn is_plain(&self, resource: &Resource, seen: &Arc<Entry>) -> bool {
        let stored = || self.storage.get(&resource.table, &seen.key);
        !versions::is_view(resource)
            && (!resource.custom || stored().is_some_and(|stored| Arc::ptr_eq(&stored, seen)))
    }

    /// Creates what is applied and not there.
    fn apply_new(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        warnings: Vec<String>,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        if !target.subresource.is_empty() {
            return Err(Status::not_found(resource, &target.name));
        }
        let uid = object.meta("uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(resource, &target.name, &why));
        }
        named(&object, target)?;
        place(&mut object, target)?;
        object.metadata_mut().remove("resourceVersion");
        self.insert(resource, options, object, warnings)
    }
}

/// A configuration as it was sent.
pub(crate) struct Configuration {
    pub(crate) config: Value,
    /// What is said of keys that are there twice.
    repeated: Vec<String>,
}

impl Configuration {
    /// Most who apply send JSON, which is YAML too.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Status> {
        let name = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let (config, repeated) = match json::read(body) {
            Ok((config, twice)) => {
                let twice = twice.iter().map(|path| name(path));
                let said = |name| format!("line 1: key {name:?} already set in map");
                (config, twice.map(said).collect())
            }
            Err(_) => yaml::read(body).map_err(|why| {
                Status::bad_request(format!(
                    "error decoding YAML: error converting YAML to JSON: {why}"
                ))
            })?,
        };
        match config {
            Value::Null => Ok(Self {
                config: Value::Object(Map::new()),
                repeated,
            }),
            config @ Value::Object(_) => Ok(Self { config, repeated }),
            other => Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into \
                 Go value of type map[string]interface {{}}",
                crate::golang::json_type(&other)
            ))),
        }
    }
}

/// `apps/v1, Kind=Deployment`; `/v1, Kind=Pod`
fn kind_of(config: &Value) -> String {
    let text = |key: &str| config[key].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let version = match version.matches('/').count() {
        0 => format!("/{version}"),
        1 => version.to_owned(),
        _ => "/".to_owned(),
    };
    format!("{version}, Kind={}", text("kind"))
}

/// Refuses a configuration of another kind, and one that says who owns what.
pub(crate) fn check_kind(config: &Value, version: &str, kind: &str) -> Result<(), Status> {
    if config["apiVersion"] != version || config["kind"] != kind {
        return Err(Status::bad_request(format!(
            "invalid object type: {}",
            kind_of(config)
        )));
    }
    if config["metadata"]
        .get("managedFields")
        .is_some_and(Value::is_array)
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// A configuration as messages name it.
pub(super) fn described(config: &Value) -> String {
    let text = |key: &str| config["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), kind_of(config))
}

/// Why a configuration was not applied, as the real server says it.
pub(crate) fn refusal(refused: &Refused, config: &Value) -> Status {
    match refused {
        Refused::Conflicts(conflicts) => Status::apply_conflicts(conflicts),
        Refused::Malformed(why) => Status::unexplained(format!(
            "failed to create typed patch object ({}): {why}",
            described(config)
        )),
        Refused::Unaccountable(Unaccountable(why)) => Status::unexplained(why.as_str()),
    }
}

/// What kubectl wrote before there was server-side apply, if it says so.
fn last_applied(object: &Object) -> Option<Value> {
    let annotations = object.metadata().get("annotations")?;
    serde_json::from_str(annotations[LAST_APPLIED].as_str()?).ok()
}

/// The fields that kubectl owns by what it wrote then: those that are as it left them.
fn allowed_by<'a>(
    kinds: &'a impl Versions,
    version: &str,
    last: &'a Value,
    live: &'a Value,
) -> Option<Set<'a>> {
    if last["apiVersion"] != version {
        return None;
    }
    let shape = kinds.shape(version)?;
    let mut fields = extract(shape, last).ok()?;
    let comparison = compare(shape, last, live)?;
    fields.subtract(&comparison.changed);
    fields.subtract(&comparison.removed);
    Some(fields)
}

/// Brings what kubectl keeps of itself in line with what it applies, so that older ones can still work with it.
fn note_applied(object: &mut Object, config: &Value) {
    let annotations = object.metadata_mut().get_mut("annotations");
    let Some(note) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) else {
        return;
    };
    if note.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config["metadata"]
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    *note = format!("{config}\n").into();
}
