//! A crash at any request of an adoption and of the following release.

use parking_lot::Mutex;
use windlass::{kube::Client, prelude::*, serde_json::Value};
use windlass_cluster::Backend;
use windlass_secretsync::SecretSync;
use windlass_suite::{
    Context as Case, CrashScenario, RecordedRequest, TestEnvironment as Inner, crash_at_every_request,
    crash_at_requests,
};

use crate::attacks::{
    fixture::{KINDS, Kind, MALLORY, VICTIM, attacked, is_managed, is_marked},
    test_cluster::{TestCluster, is_neither_event_nor_lease, namespace_of, shipped},
};

/// An object is adopted, and released when the SecretSync is deleted.
struct Adopted {
    kind: Kind,
    /// The object's UID in this run.
    uid: Mutex<Value>,
}

impl CrashScenario for Adopted {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, inner: &Inner) -> anyhow::Result<()> {
        let env = attacked(inner.case(), Some(MALLORY)).await?;
        let own = env
            .make(self.kind, VICTIM, &self.kind.object("token", "own"))
            .await?;
        *self.uid.lock() = own["metadata"]["uid"].clone();
        env.make(self.kind, MALLORY, &self.kind.object("token", "evil"))
            .await?;
        let spec = json!({
            "kind": self.kind.name(), "names": ["token"], "adoptionPolicy": "Always", "recreatePolicy": "IfNeeded",
        });
        env.sync(MALLORY, "grab", spec).await?;
        Ok(())
    }

    async fn manager(&self, inner: &Inner) -> anyhow::Result<Manager> {
        TestCluster::of(inner.clone(), inner.case().client())
            .new_manager()
            .await
    }

    async fn wait_until_done(&self, inner: &Inner) -> anyhow::Result<()> {
        let env = TestCluster::of(inner.clone(), inner.case().client());
        let mallory = env.in_namespace(MALLORY);
        // It continues where the previous process stopped.
        let sync = mallory.get::<SecretSync>("grab").await;
        if sync.is_ok_and(|sync| sync.metadata.deletion_timestamp.is_none()) {
            env.wait_for_object(self.kind, VICTIM, "token", is_marked).await?;
            env.wait_for_status(MALLORY, "grab", |status| status.synced == 1)
                .await?;
            mallory.delete::<SecretSync>("grab").await?;
        }
        mallory.wait_until_deleted::<SecretSync>("grab").await?;
        env.settle().await;
        Ok(())
    }

    async fn end_state(&self, inner: &Inner) -> anyhow::Result<Value> {
        let env = TestCluster::of(inner.clone(), inner.case().client());
        let object = env.find(self.kind, VICTIM, "token").await?;
        Ok(json!({
            "same": object["metadata"]["uid"] == *self.uid.lock(),
            "data": object["data"],
            "marked": is_marked(&object),
            "managed": is_managed(&object),
        }))
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let is_copy = write.is_about(self.kind.plural(), "token")
            && namespace_of(write) == VICTIM
            && ["create", "update"].contains(&&*write.access.verb);
        !is_neither_event_nor_lease(write) || write.is_about("secretsyncs", "grab") || is_copy
    }
}

/// Whatever happened before, the victim ends up with its own object.
pub(crate) async fn adoption_and_release_recover_from_a_crash_at_every_request(
    case: Case,
) -> anyhow::Result<()> {
    for kind in KINDS {
        let scenario = Adopted {
            kind,
            uid: Mutex::new(Value::Null),
        };
        let report = match case.cluster().backend() {
            Backend::Embedded => crash_at_every_request(&case, &scenario).await?,
            _ => crash_at_requests(&case, &scenario, |n| n + n + 1).await?,
        };
        assert!(report.requests >= 12, "{report:?}");
    }
    Ok(())
}
