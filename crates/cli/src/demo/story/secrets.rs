//! A Secret that spreads to the namespaces that ask for it, and to no other.

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::{from_value, json},
};
use windlass_secretsync::{
    SecretSync,
    api::{SOURCE_NAMESPACE, SYNC},
};

use super::{Chapter, Finding, NAMESPACE, Story};

/// They ask for copies.
const ASKING: [&str; 3] = ["team-a", "team-b", "team-c"];
/// It has a Secret of the same name.
const FOREIGN: &str = "team-d";
const NAME: &str = "registry";

const SPREAD: &str = "the three namespaces that ask have a copy, and no other has";
const UNTOUCHED: &str = "the foreign Secret in team-d is as it was, and the SecretSync says Conflict";
const FOLLOWED: &str = "all three copies followed the source";
const REPAIRED: &str = "the copy that was changed by hand is right again";
const WITHDRAWN: &str = "team-b has no copy any more, and the others have";
const GONE: &str = "no copy is left, and the foreign Secret is still there";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "secretsync: a Secret goes where it is asked for",
    claims: &[SPREAD, UNTOUCHED, FOLLOWED, REPAIRED, WITHDRAWN, GONE],
    tell: |story| tell(story).boxed_local(),
};

async fn tell(story: &Story) -> anyhow::Result<()> {
    let scene = Scene { story };
    story
        .act(
            "create four namespaces that ask for copies, one with a Secret of its own",
            scene.prepare(),
        )
        .await?;
    let foreign = scene.secrets(FOREIGN).get(NAME).await?;
    story
        .act(
            "create Secret secretsync/registry, and a SecretSync that selects it",
            scene.share(),
        )
        .await?;
    story
        .claim(SPREAD, async || {
            if scene.secrets(NAMESPACE).get_opt(NAME).await?.is_some() {
                return Ok(Err(format!("Secret {NAMESPACE}/{NAME} is there")));
            }
            scene.hold(&ASKING, "first").await
        })
        .await?;
    story
        .claim(UNTOUCHED, async || {
            let now = scene.secrets(FOREIGN).get(NAME).await?;
            if now != foreign {
                return Ok(Err(format!("it is {:?} now", now.metadata)));
            }
            let sync = scene.syncs().get(NAME).await?;
            let conditions = sync.status.unwrap_or_default().conditions;
            let conflict = conditions
                .iter()
                .any(|condition| condition.type_ == "Conflict" && condition.status == "True");
            Ok(conflict.then_some(()).ok_or(format!("it says {conditions:?}")))
        })
        .await?;

    let second = json!({ "stringData": { "password": "second" } });
    story
        .act("change the source", scene.patch(SOURCE_NAMESPACE, second))
        .await?;
    story
        .claim(FOLLOWED, async || scene.hold(&ASKING, "second").await)
        .await?;
    let wrong = json!({ "stringData": { "password": "wrong" } });
    story
        .act("change the copy in team-a by hand", scene.patch("team-a", wrong))
        .await?;
    story
        .claim(REPAIRED, async || scene.hold(&ASKING, "second").await)
        .await?;

    let withdrawn = json!({ "metadata": { "annotations": { SYNC: null } } });
    let (namespaces, params, withdrawn) = (
        scene.namespaces(),
        PatchParams::default(),
        Patch::Merge(withdrawn),
    );
    let withdrawing = namespaces.patch("team-b", &params, &withdrawn);
    story.act("team-b withdraws its consent", withdrawing).await?;
    story
        .claim(WITHDRAWN, async || match scene.gone("team-b").await? {
            Ok(()) => scene.hold(&["team-a", "team-c"], "second").await,
            there => Ok(there),
        })
        .await?;
    let (syncs, delete) = (scene.syncs(), DeleteParams::default());
    let deleting = syncs.delete(NAME, &delete);
    story.act("delete the SecretSync", deleting).await?;
    story
        .claim(GONE, async || {
            for namespace in ASKING {
                let gone = scene.gone(namespace).await?;
                if gone.is_err() {
                    return Ok(gone);
                }
            }
            let now = scene.secrets(FOREIGN).get_opt(NAME).await?;
            let same = now.as_ref() == Some(&foreign);
            Ok(same.then_some(()).ok_or("the foreign Secret changed".to_owned()))
        })
        .await
}

/// Where this chapter happens: in namespaces of its own.
struct Scene<'a> {
    story: &'a Story,
}

impl Scene<'_> {
    async fn prepare(&self) -> anyhow::Result<()> {
        let post = PostParams::default();
        let asking = ASKING.into_iter().chain([FOREIGN]);
        for (name, annotations) in asking
            .map(|name| (name, json!({ SYNC: "true" })))
            .chain([(SOURCE_NAMESPACE, json!({}))])
        {
            let namespace = json!({ "metadata": { "name": name, "annotations": annotations } });
            self.namespaces().create(&post, &from_value(namespace)?).await?;
        }
        let own = json!({ "metadata": { "name": NAME }, "stringData": { "password": "own" } });
        self.secrets(FOREIGN).create(&post, &from_value(own)?).await?;
        Ok(())
    }

    async fn share(&self) -> anyhow::Result<()> {
        let post = PostParams::default();
        let source = json!({ "metadata": { "name": NAME }, "stringData": { "password": "first" } });
        self.secrets(SOURCE_NAMESPACE)
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
            .context("the Secret is there")?;
        Ok(())
    }

    /// Whether the copies in these namespaces hold this password.
    async fn hold(&self, namespaces: &[&str], password: &str) -> anyhow::Result<Finding> {
        for namespace in namespaces {
            let copy = self.secrets(namespace).get_opt(NAME).await?;
            let data = copy.and_then(|copy| copy.data).unwrap_or_default();
            let held = data.get("password").map(|value| value.0.as_slice());
            if held != Some(password.as_bytes()) {
                return Ok(Err(format!(
                    "Secret {namespace}/{NAME} is not there, or holds something else"
                )));
            }
        }
        Ok(Ok(()))
    }

    async fn gone(&self, namespace: &str) -> anyhow::Result<Finding> {
        let left = self.secrets(namespace).get_opt(NAME).await?;
        Ok(match left {
            None => Ok(()),
            Some(left) => Err(format!("Secret {namespace}/{} is there", left.name_any())),
        })
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.story.client.clone())
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.story.client.clone(), namespace)
    }

    fn syncs(&self) -> Api<SecretSync> {
        Api::namespaced(self.story.client.clone(), SOURCE_NAMESPACE)
    }
}
