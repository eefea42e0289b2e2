//! The status of the object whose children are looked at.

use kube::{
    api::{Patch, PatchParams},
    core::Request,
};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_cache::{Cacheable, KindName};

use super::{
    Parent,
    compare::{covers, fingerprint},
    error::ChildError,
    memory::Deed,
};
use crate::error::Error;

impl<K: Cacheable + Serialize> Parent<'_, K> {
    /// Applies the status, unless it is there already.
    ///
    /// Whether a field that is no longer said must go is known only to the server, so a status that is there and says more
    /// is applied once, and not again while neither side changes.
    pub(super) async fn write_status(&self, wanted: Result<Value, serde_json::Error>) -> Result<(), Error> {
        let unserialisable = |what: &str| {
            let what = format!("{what} {}", self.key);
            move |cause| Error::terminal(ChildError::Unserialisable { what, cause })
        };
        let wanted = wanted.map_err(unserialisable("the status of"))?;
        let mut object = serde_json::to_value(self.object).map_err(unserialisable("the object"))?;
        let there = object["status"].take();
        let deed = Deed {
            wanted: fingerprint(&wanted),
            there: fingerprint(&there),
        };
        let is_there = covers(&there, &wanted) && covers(&wanted, &there);
        if is_there || self.memory.lock().status(self.key) == Some(deed) {
            return Ok(());
        }
        let kind = KindName::of::<K>(self.kind);
        let body = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": self.key.name(),
                "namespace": self.key.namespace(),
                // Not of another object that has taken its name.
                "uid": self.object.meta().uid,
            },
            "status": wanted,
        });
        let request = Request::new(K::url_path(self.kind, self.key.namespace()));
        let parameters = PatchParams::apply(&self.ctx.world.listers.controller).force();
        let request = request.patch_subresource("status", self.key.name(), &parameters, &Patch::Apply(&body));
        let answer = match request.map_err(kube::Error::BuildRequest) {
            Ok(request) => self.ctx.client().request::<Value>(request).await,
            Err(error) => Err(error),
        };
        let mut answer = answer.map_err(|cause| ChildError::Api {
            action: "write the status of",
            kind,
            key: self.key.clone(),
            cause,
        })?;
        let there = fingerprint(&answer["status"].take());
        let deed = Deed { there, ..deed };
        self.memory.lock().status_written(self.key, deed);
        Ok(())
    }
}
