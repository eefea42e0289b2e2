//! Runs tests with exactly the RBAC rights of a program's manifest.

use anyhow::{Context as _, bail};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use windlass_cluster::record_rbac;
use windlass_rights::{Recorder, Rule};

use crate::Context;

/// The roles of a manifest, and a record of their use. Clones share the record.
///
/// ```
/// use windlass_suite::ManifestRoles;
///
/// let roles = ManifestRoles::parse("
/// apiVersion: rbac.authorization.k8s.io/v1
/// kind: ClusterRole
/// metadata: { name: robot }
/// rules: [{ verbs: [get], apiGroups: [''], resources: [pods] }]
/// ").unwrap();
/// assert_eq!(roles.unused().len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct ManifestRoles {
    cluster_roles: Vec<ClusterRole>,
    roles: Vec<Role>,
    recorder: Recorder,
}

impl ManifestRoles {
    /// Parses a manifest with Roles and `ClusterRoles`. Bindings and service accounts are ignored, since tests bind their own
    /// users.
    pub fn parse(manifest: &str) -> anyhow::Result<Self> {
        let (mut cluster_roles, mut roles) = (Vec::new(), Vec::new());
        for document in serde_yaml_ng::Deserializer::from_str(manifest) {
            let object = Value::deserialize(document)?;
            match object["kind"].as_str() {
                Some("ClusterRole") => cluster_roles.push(serde_json::from_value(object)?),
                Some("Role") => roles.push(serde_json::from_value(object)?),
                Some("ClusterRoleBinding" | "RoleBinding" | "ServiceAccount") => {}
                None if object.is_null() => {}
                other => bail!("unexpected kind {other:?} in a manifest of roles"),
            }
        }
        Ok(Self {
            cluster_roles,
            roles,
            recorder: Recorder::new(),
        })
    }

    /// Returns a client with exactly these rights: those of a `ClusterRole` everywhere, those of a `Role` in the case's
    /// namespace, whatever namespace it names.
    ///
    /// Each case has its own user and roles, so cases can run at the same time.
    pub async fn client(&self, case: &Context) -> anyhow::Result<Client> {
        let name = format!("robot-{}", case.namespace());
        let mut user = case.cluster().user(&name, [""; 0]).await?;
        for role in &self.cluster_roles {
            let mut role = role.clone();
            let own = role
                .metadata
                .name
                .as_deref()
                .context("a ClusterRole has no name")?;
            role.metadata.name = Some(format!("{own}-{}", case.namespace()));
            role.metadata.owner_references = Some(vec![case.owner()]);
            user = user.with_cluster_role(&role).await?;
        }
        for role in &self.roles {
            let mut role = role.clone();
            role.metadata.namespace = Some(case.namespace().to_owned());
            user = user.with_role(&role).await?;
        }
        Ok(record_rbac(&user.client(), &self.recorder, &name))
    }

    /// Returns the rules that no client has used so far.
    pub fn unused(&self) -> Vec<Rule> {
        self.recorder.records().unused(&self.rules())
    }

    /// Returns the forbidden requests, such as `list pods`.
    pub fn forbidden(&self) -> Vec<String> {
        let uses = self.recorder.records().records;
        let refused = uses.into_iter().filter(|one| one.forbidden > 0);
        refused.map(|one| one.access.to_string()).collect()
    }

    fn rules(&self) -> Vec<Rule> {
        let everywhere = self.cluster_roles.iter().filter_map(|role| role.rules.as_ref());
        let within = self.roles.iter().filter_map(|role| role.rules.as_ref());
        let granted: Vec<&PolicyRule> = everywhere.chain(within).flatten().collect();
        let granted = serde_json::to_value(granted).and_then(serde_json::from_value);
        granted.expect("a `Rule` is a `PolicyRule`")
    }
}
