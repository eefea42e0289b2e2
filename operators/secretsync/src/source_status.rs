//! The status of annotated sources, which have no status of their own: a SecretSync that we create next to each.
//!
//! ```text
//!   Secret registry (annotated) ──► SecretSync secret.registry: `kubectl get secretsyncs` shows its status
//! ```
//!
//! It has [`STATUS_OF_ANNOTATION`], and its spec has no effect. Its owner is the source, so it is deleted with it even if
//! no process runs.

use std::sync::Arc;

use windlass::{
    kube::api::ObjectMeta,
    prelude::{Action, Context, Error, ObjectKey, from_value, json},
};

use crate::{
    api::{MAX_NAME_LENGTH, STATUS_OF_ANNOTATION, SecretSync, SourceKind},
    engine::Engine,
    identity::{Job, SyncId},
};

/// Returns the name of the SecretSync that shows the status of an annotated source; `None` if it would be too long.
fn status_name(kind: SourceKind, name: &str) -> Option<String> {
    let prefix = match kind {
        SourceKind::Secret => "secret",
        SourceKind::ConfigMap => "configmap",
    };
    Some(format!("{prefix}.{name}")).filter(|name| name.len() <= MAX_NAME_LENGTH)
}

/// Returns the SecretSync that has the status of a sync; `None` if an annotated source has none.
pub(crate) fn status_key(id: &SyncId, source_namespace: &str) -> Option<ObjectKey> {
    match id {
        SyncId::Declared { namespace, name } => Some(ObjectKey::namespaced(&**namespace, &**name)),
        SyncId::Annotated { kind, name } => {
            let name = status_name(*kind, name)?;
            Some(ObjectKey::namespaced(source_namespace, name.as_str()))
        }
    }
}

/// Returns the annotated source whose status this SecretSync shows. Others cannot be mistaken for one: it must be in the
/// source namespace, under the name that we give it.
pub(crate) fn status_of(metadata: &ObjectMeta, source_namespace: &str) -> Option<SyncId> {
    let annotation = metadata.annotations.as_ref()?.get(STATUS_OF_ANNOTATION)?;
    let (kind, name) = annotation.split_once('/')?;
    let kind = SourceKind::ALL.into_iter().find(|one| one.name() == kind)?;
    let is_ours = metadata.namespace.as_deref() == Some(source_namespace)
        && metadata.name == status_name(kind, name)
        && metadata.name.is_some();
    is_ours.then(|| SyncId::Annotated {
        kind,
        name: name.into(),
    })
}

impl Engine {
    /// Creates, updates or deletes the SecretSync that shows the status of an annotated source.
    pub(crate) async fn reconcile_source_status(
        &self,
        kind: SourceKind,
        name: &Arc<str>,
        ctx: &Context<Job>,
    ) -> Result<Action, Error> {
        let id = SyncId::Annotated {
            kind,
            name: Arc::clone(name),
        };
        let (home, source) = {
            let index = self.index.read();
            let config = &index.config;
            // It could not be seen. The page says so.
            if !config.is_within(&config.source_namespace) {
                return Ok(Action::done());
            }
            let sync = index.sync(&id);
            if let Some(sync) = sync
                && let Err(error) = &sync.rules
            {
                ctx.recorder()
                    .lasting()
                    .warning(&sync.reference, "InvalidAnnotation", error.clone());
            }
            (
                Arc::clone(&config.source_namespace),
                sync.map(|sync| sync.reference.clone()),
            )
        };
        let Some(key) = status_key(&id, &home) else {
            return Ok(Action::done());
        };
        let shown = self.listers().syncs.try_get(&key)?;
        if shown
            .as_ref()
            .is_some_and(|shown| status_of(&shown.metadata, &home) != Some(id.clone()))
        {
            if let Some(source) = source {
                let message = format!(
                    "its status is not shown: SecretSync {key}, which would show it, exists already; recreate that one under another name"
                );
                tracing::debug!(%key, sync = %id, "a SecretSync of that name exists; the status of the source is not shown");
                ctx.recorder()
                    .lasting()
                    .warning(&source, "StatusNotShown", message);
            }
            return Ok(Action::done());
        }
        let source = match source {
            Some(source) => Some(source),
            // It has lost its annotation: the status stays while the removal of its copies waits for a confirmation.
            None if self.held_removal(&id).is_some() => self.index.read().annotated_source(&id),
            None if shown.is_some() && self.has_unwanted(&id, shown.as_deref()) => {
                // Being removed; that triggers another reconcile.
                return Ok(Action::done());
            }
            None => None,
        };
        match (source.and_then(|source| source.uid), shown) {
            (None, shown) => {
                self.tracker.lock().forget(&id);
                self.status_writes.lock().remove(&id);
                if let Some(shown) = shown.filter(|shown| shown.metadata.deletion_timestamp.is_none()) {
                    ctx.writer().delete(&*shown).await?;
                }
                Ok(Action::done())
            }
            (Some(uid), None) => {
                let object: SecretSync = from_value(json!({
                    "metadata": {
                        "namespace": &*home, "name": key.name(),
                        "annotations": { STATUS_OF_ANNOTATION: format!("{}/{name}", kind.name()) },
                        "ownerReferences": [{
                            "apiVersion": "v1", "kind": kind.name(), "name": &**name, "uid": uid,
                        }],
                    },
                    "spec": { "kind": kind, "names": [&**name] },
                }))?;
                // The write triggers another reconcile, which writes the status.
                match ctx.writer().create(&object).await {
                    Err(error) if error.is_already_exists() => {}
                    created => drop(created?),
                }
                Ok(Action::done())
            }
            (Some(_), Some(shown)) => self.write_status(&id, &shown, ctx).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_objects_show_the_status_of_a_source() {
        let found = |namespace: &str, name: &str, of: &str| {
            let metadata = ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                annotations: Some([(STATUS_OF_ANNOTATION.to_owned(), of.to_owned())].into()),
                ..ObjectMeta::default()
            };
            status_of(&metadata, "home").map(|id| id.to_string())
        };
        let expected = Some("annotated/Secret/a.b".to_owned());
        assert_eq!(found("home", "secret.a.b", "Secret/a.b"), expected);
        for (namespace, name, of) in [
            ("other", "secret.a", "Secret/a"),
            ("home", "secret.b", "Secret/a"),
            ("home", "configmap.a", "Secret/a"),
            ("home", "pod.a", "Pod/a"),
            ("home", "secret.a", "a"),
        ] {
            assert_eq!(found(namespace, name, of), None, "{namespace} {name} {of}");
        }
        assert_eq!(status_name(SourceKind::Secret, &"n".repeat(247)), None);
    }
}
