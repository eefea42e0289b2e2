//! The imperative style: a reconcile function reads from caches and writes step by step, with a finalizer.
//!
//! A Bucket stands for a bucket of an object store outside of the cluster. The finalizer ensures that the bucket is deleted
//! before the object disappears, even if the controller is not running when the user deletes it. A ConfigMap tells pods
//! the address; a change of it by hand is undone.
//!
//! ```sh
//! cargo run -p windlass-examples --bin imperative -- --embedded   # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin imperative -- --install    # runs on the kubeconfig's cluster
//! ```

use std::{collections::BTreeSet, sync::Mutex};

use windlass::{k8s_openapi::api::core::v1::ConfigMap, prelude::*};
use windlass_examples::{User, example};

const FINALIZER: &str = "example.com/bucket";

/// Desired state of a [`Bucket`].
#[windlass::resource(group = "example.com", version = "v1")]
#[kube(kind = "Bucket", namespaced, status = "BucketStatus")]
struct BucketSpec {
    region: String,
}

/// Observed state of a [`Bucket`].
#[windlass::api_type]
struct BucketStatus {
    url: String,
}

/// A reconciler with state of its own. A plain `async fn(Request, Context)` is one too.
struct Buckets {
    store: Arc<ObjectStore>,
}

impl Reconciler for Buckets {
    /// Never runs twice at the same time for one Bucket. After an error it is retried with backoff, so each step must be
    /// safe to repeat.
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(bucket) = ctx.lister::<Bucket>()?.get(&request.key) else {
            return Ok(Action::done()); // deleted, and cleaned up before
        };
        let url = format!("https://{}.example.com/{}", bucket.spec.region, bucket.name_any());
        if bucket.meta().deletion_timestamp.is_some() {
            self.store.delete(&url);
            ctx.writer().remove_finalizer(&*bucket, FINALIZER).await?;
            return Ok(Action::done());
        }
        // Before the first effect outside of the cluster. Returns the object with the finalizer.
        let mut bucket = ctx.writer().add_finalizer(&*bucket, FINALIZER).await?;
        if self.store.create(&url) {
            ctx.recorder()
                .normal(&bucket, "Created", format!("created {url}"));
        }
        let config: ConfigMap = from_value(json!({
            "metadata": {
                "name": format!("{}-bucket", bucket.name_any()),
                "namespace": bucket.namespace(),
                "ownerReferences": [bucket.controller_owner_ref(&())],
            },
            "data": { "url": url },
        }))?;
        let existing = ctx.get::<ConfigMap>(&config.name_any())?;
        if existing.is_none_or(|existing| existing.data != config.data) {
            ctx.writer().apply(&config).await?; // takes the field back from any other manager
        }
        if bucket.status.as_ref().is_none_or(|status| status.url != url) {
            bucket.status = Some(BucketStatus { url });
            ctx.writer().apply_status(&bucket).await?; // visible to the next read of the cache
        }
        Ok(Action::done())
    }
}

/// Stands for the client of an object store.
#[derive(Default)]
struct ObjectStore(Mutex<BTreeSet<String>>);

impl ObjectStore {
    /// Returns whether the bucket is new.
    fn create(&self, url: &str) -> bool {
        self.0
            .lock()
            .expect("no panic while locked")
            .insert(url.to_owned())
    }

    fn delete(&self, url: &str) {
        self.0.lock().expect("no panic while locked").remove(url);
    }

    fn list(&self) -> Vec<String> {
        self.0
            .lock()
            .expect("no panic while locked")
            .iter()
            .cloned()
            .collect()
    }
}

fn main() -> std::process::ExitCode {
    let store = Arc::<ObjectStore>::default();
    let reconciler = Buckets { store: store.clone() };
    let buckets = Controller::<Bucket>::new("bucket")
        .owns::<ConfigMap>()
        .workers::<4>();
    let setup = |manager: Manager| manager.controller(buckets.reconcile(reconciler));
    example("imperative", [Bucket::crd()], setup, async |user| {
        demo(user, &store).await
    })
}

async fn demo(user: User, store: &ObjectStore) -> Result<(), Error> {
    let photos = json!({ "metadata": { "name": "photos" }, "spec": { "region": "eu" } });
    user.create::<Bucket>(photos).await?;
    let photos = user
        .wait_for::<Bucket>("photos", |it| it.status.is_some())
        .await?;
    println!("photos has the finalizers {:?}", photos.finalizers());
    println!("the store has {:?}", store.list());
    let wrong = json!({ "data": { "url": "https://elsewhere.example.com" } });
    user.patch::<ConfigMap>("photos-bucket", wrong).await?;
    let url = photos.status.as_ref().map(|status| status.url.as_str());
    let is_repaired = |config: &ConfigMap| config.data.as_ref().map(|data| data["url"].as_str()) == url;
    user.wait_for("photos-bucket", is_repaired).await?;
    println!("its ConfigMap was changed by hand, and is repaired");
    user.delete::<Bucket>("photos").await?;
    user.wait_until_deleted::<Bucket>("photos").await?;
    println!("photos is deleted, and the store has {:?}", store.list());
    Ok(())
}
