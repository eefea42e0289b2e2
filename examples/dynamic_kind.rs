//! A kind known only at run time: objects are `DynamicObject`s, and the kind comes from a flag.
//!
//! Every object of the kind gets the label `example.com/team` with the team's name, unless it has one.
//!
//! ```sh
//! cargo run -p windlass-examples --bin dynamic_kind -- --embedded                      # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin dynamic_kind -- --kind=Deployment --group=apps  # runs on the kubeconfig's cluster
//! ```

use clap::Parser;
use windlass::{
    kube::{
        api::{Api, DynamicObject, PostParams},
        core::{ApiResource, GroupVersionKind},
        discovery::{self, Scope},
    },
    prelude::*,
};
use windlass_examples::{Flags, User};

const TEAM_LABEL: &str = "example.com/team";

#[derive(Parser)]
struct Program {
    /// The kind to label
    #[arg(long, default_value = "ConfigMap")]
    kind: String,
    /// Its API group; empty for the core group
    #[arg(long, default_value = "")]
    group: String,
    /// Its API version
    #[arg(long, default_value = "v1")]
    version: String,
    /// The value of the label
    #[arg(long, default_value = "platform")]
    team: String,
    #[command(flatten)]
    flags: Flags,
}

/// Adds the label to objects of one kind.
struct Labeller {
    kind: ApiResource,
    team: String,
}

impl Reconciler for Labeller {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let objects = ctx.dynamic_lister::<DynamicObject>(&self.kind)?;
        let Some(object) = objects.get(&request.key) else {
            return Ok(Action::done());
        };
        if !object.labels().contains_key(TEAM_LABEL) {
            let patch = json!({ "metadata": { "labels": { TEAM_LABEL: self.team } } });
            let writer = ctx.writer().dynamic(self.kind.clone());
            writer.merge_patch(&*object, &patch).await?;
        }
        Ok(Action::done())
    }
}

fn main() -> std::process::ExitCode {
    let Program {
        kind,
        group,
        version,
        team,
        flags,
    } = Program::parse();
    let gvk = GroupVersionKind { group, version, kind };
    let setup = async |manager: Manager, client: Client| {
        // The server knows the plural and the scope. Without asking it: `ApiResource::from_gvk`.
        let (kind, found) = discovery::pinned_kind(&client, &gvk).await?;
        let mut watch = Watch::<DynamicObject>::dynamic(kind.clone()).filter(Predicate::labels_changed());
        if found.scope == Scope::Cluster {
            watch = watch.cluster_scoped();
        }
        let labeller = Controller::from_watch("labeller", watch).reconcile(Labeller { kind, team });
        Ok(manager.controller(labeller))
    };
    flags.run("dynamic_kind", [], setup, async |user| demo(user, &gvk).await)
}

/// Creates an object of the kind without a label, and one with another team.
async fn demo(user: User, gvk: &GroupVersionKind) -> Result<(), Error> {
    let kind = ApiResource::from_gvk(gvk);
    let objects = Api::<DynamicObject>::default_namespaced_with(user.client(), &kind);
    for (name, labels) in [("ours", json!({})), ("theirs", json!({ TEAM_LABEL: "payments" }))] {
        let metadata = json!({ "name": name, "labels": labels });
        let object = from_value(json!({ "metadata": metadata }))?;
        objects.create(&PostParams::default(), &object).await?;
    }
    for name in ["ours", "theirs"] {
        let team = loop {
            let labelled = objects.get(name).await?;
            if let Some(team) = labelled.labels().get(TEAM_LABEL) {
                break team.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        println!("{} {name} belongs to {team}", gvk.kind);
    }
    Ok(())
}
