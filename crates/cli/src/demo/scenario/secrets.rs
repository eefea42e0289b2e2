//! A Secret is copied to the namespaces that opt in, and to no other.

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    api::conditions::is_true,
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::{from_value, json},
};
use windlass_secretsync::{
    SecretSync,
    api::{DEFAULT_SOURCE_NAMESPACE, SYNC_ANNOTATION},
};

use super::{Chapter, CheckResult, NAMESPACE, Scenario};

/// The namespaces that opt in to copies.
const OPTED_IN: [&str; 3] = ["team-a", "team-b", "team-c"];
/// A namespace that opts in, but has its own Secret of the same name.
const FOREIGN: &str = "team-d";
const NAME: &str = "registry";

const SPREAD: &str = "the three namespaces that opted in have a copy, and no other";
const UNTOUCHED: &str = "the foreign Secret in team-d is unchanged, and the SecretSync reports Conflict";
const FOLLOWED: &str = "all three copies followed the source";
const REPAIRED: &str = "the copy that was changed by hand was repaired";
const WITHDRAWN: &str = "the copy in team-b was deleted, and the others remain";
const GONE: &str = "no copy is left, and the foreign Secret still exists";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "secretsync: a Secret is copied to the namespaces that opt in",
    claims: &[SPREAD, UNTOUCHED, FOLLOWED, REPAIRED, WITHDRAWN, GONE],
    run: |scenario| run(scenario).boxed_local(),
};

async fn run(scenario: &Scenario) -> anyhow::Result<()> {
    let clients = Clients { scenario };
    scenario
        .perform(
            "create four namespaces that opt in to copies, one with its own Secret",
            clients.prepare(),
        )
        .await?;
    let foreign = clients.secrets(FOREIGN).get(NAME).await?;
    scenario
        .perform(
            "create Secret secretsync/registry, and a SecretSync that selects it",
            clients.create_source(),
        )
        .await?;
    scenario
        .check_claim(SPREAD, async || {
            if clients.secrets(NAMESPACE).get_opt(NAME).await?.is_some() {
                return Ok(Err(format!("Secret {NAMESPACE}/{NAME} exists")));
            }
            clients.check_copies(&OPTED_IN, "first").await
        })
        .await?;
    scenario
        .check_claim(UNTOUCHED, async || {
            let now = clients.secrets(FOREIGN).get(NAME).await?;
            if now != foreign {
                return Ok(Err(format!("its metadata is {:?} now", now.metadata)));
            }
            let sync = clients.syncs().get(NAME).await?;
            let conditions = sync.status.unwrap_or_default().conditions;
            Ok(is_true(&conditions, "Conflict")
                .then_some(())
                .ok_or(format!("its conditions are {conditions:?}")))
        })
        .await?;

    let second = json!({ "stringData": { "password": "second" } });
    scenario
        .perform(
            "change the source",
            clients.patch(DEFAULT_SOURCE_NAMESPACE, second),
        )
        .await?;
    scenario
        .check_claim(FOLLOWED, async || clients.check_copies(&OPTED_IN, "second").await)
        .await?;
    let wrong = json!({ "stringData": { "password": "wrong" } });
    scenario
        .perform(
            "change the copy in team-a by hand",
            clients.patch("team-a", wrong),
        )
        .await?;
    scenario
        .check_claim(REPAIRED, async || clients.check_copies(&OPTED_IN, "second").await)
        .await?;

    let withdrawn = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    let (namespaces, params, withdrawn) = (
        clients.namespaces(),
        PatchParams::default(),
        Patch::Merge(withdrawn),
    );
    let withdrawing = namespaces.patch("team-b", &params, &withdrawn);
    scenario.perform("team-b opts out", withdrawing).await?;
    scenario
        .check_claim(WITHDRAWN, async || {
            match clients.check_deleted("team-b").await? {
                Ok(()) => clients.check_copies(&["team-a", "team-c"], "second").await,
                left => Ok(left),
            }
        })
        .await?;
    let (syncs, delete) = (clients.syncs(), DeleteParams::default());
    let deleting = syncs.delete(NAME, &delete);
    scenario.perform("delete the SecretSync", deleting).await?;
    scenario
        .check_claim(GONE, async || {
            for namespace in OPTED_IN {
                let gone = clients.check_deleted(namespace).await?;
                if gone.is_err() {
                    return Ok(gone);
                }
            }
            let now = clients.secrets(FOREIGN).get_opt(NAME).await?;
            let same = now.as_ref() == Some(&foreign);
            Ok(same.then_some(()).ok_or("the foreign Secret changed".to_owned()))
        })
        .await
}

/// Helpers for this chapter, which has its own namespaces.
struct Clients<'a> {
    scenario: &'a Scenario,
}

impl Clients<'_> {
    async fn prepare(&self) -> anyhow::Result<()> {
        let post = PostParams::default();
        let asking = OPTED_IN.into_iter().chain([FOREIGN]);
        for (name, annotations) in asking
            .map(|name| (name, json!({ SYNC_ANNOTATION: "true" })))
            .chain([(DEFAULT_SOURCE_NAMESPACE, json!({}))])
        {
            let namespace = json!({ "metadata": { "name": name, "annotations": annotations } });
            self.namespaces().create(&post, &from_value(namespace)?).await?;
        }
        let own = json!({ "metadata": { "name": NAME }, "stringData": { "password": "own" } });
        self.secrets(FOREIGN).create(&post, &from_value(own)?).await?;
        Ok(())
    }

    async fn create_source(&self) -> anyhow::Result<()> {
        let post = PostParams::default();
        let source = json!({ "metadata": { "name": NAME }, "stringData": { "password": "first" } });
        self.secrets(DEFAULT_SOURCE_NAMESPACE)
            .create(&post, &from_value(source)?)
            .await?;
        let sync = json!({ "metadata": { "name": NAME }, "spec": { "names": [NAME] } });
        self.syncs().create(&post, &from_value(sync)?).await?;
        Ok(())
    }

    async fn patch(&self, namespace: &str, patch: windlass::serde_json::Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(patch);
        self.secrets(namespace)
            .patch(NAME, &PatchParams::default(), &patch)
            .await
            .context("cannot patch the Secret")?;
        Ok(())
    }

    /// Whether the copies in these namespaces have this password.
    async fn check_copies(&self, namespaces: &[&str], password: &str) -> anyhow::Result<CheckResult> {
        for namespace in namespaces {
            let copy = self.secrets(namespace).get_opt(NAME).await?;
            let data = copy.and_then(|copy| copy.data).unwrap_or_default();
            let held = data.get("password").map(|value| value.0.as_slice());
            if held != Some(password.as_bytes()) {
                return Ok(Err(format!(
                    "Secret {namespace}/{NAME} is missing or has other data"
                )));
            }
        }
        Ok(Ok(()))
    }

    async fn check_deleted(&self, namespace: &str) -> anyhow::Result<CheckResult> {
        let left = self.secrets(namespace).get_opt(NAME).await?;
        Ok(match left {
            None => Ok(()),
            Some(left) => Err(format!("Secret {namespace}/{} exists", left.name_any())),
        })
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.scenario.client.clone())
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.scenario.client.clone(), namespace)
    }

    fn syncs(&self) -> Api<SecretSync> {
        Api::namespaced(self.scenario.client.clone(), DEFAULT_SOURCE_NAMESPACE)
    }
}
