//! Users of a cluster, and the roles that tests bind to them.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use k8s_openapi::api::{
    authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus},
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, embedded::EmbeddedServer};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A real server enforces a new binding a moment after it was written. After this time, it does not use RBAC.
const BINDING_TIMEOUT: Duration = Duration::from_secs(10);
const BINDING_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A user of a [`Cluster`](crate::Cluster), from [`Cluster::user`](crate::Cluster::user).
#[derive(Clone)]
pub struct User {
    name: String,
    client: Client,
    /// The administrator's client, which writes the roles and bindings.
    admin: Client,
    access: Arc<KubeconfigSource>,
}

/// Where a user's kubeconfig comes from.
pub(crate) enum KubeconfigSource {
    /// The file exists.
    Written(PathBuf),
    /// The embedded server writes it on the first request, because that opens its socket.
    OnDemand {
        cluster: Weak<EmbeddedServer>,
        user: String,
        groups: Vec<String>,
        file: String,
    },
}

impl KubeconfigSource {
    pub(crate) fn on_demand(
        cluster: &Arc<EmbeddedServer>,
        user: &str,
        groups: &[String],
        file: String,
    ) -> Self {
        Self::OnDemand {
            cluster: Arc::downgrade(cluster),
            user: user.to_owned(),
            groups: groups.to_owned(),
            file,
        }
    }
}

impl User {
    pub(crate) fn new(name: String, client: Client, admin: Client, access: KubeconfigSource) -> Self {
        Self {
            name,
            client,
            admin,
            access: Arc::new(access),
        }
    }

    /// Returns the user name, as in RBAC bindings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a client that acts as this user.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the path of a kubeconfig for this user. It is removed with the cluster. Like
    /// [`Cluster::kubeconfig`](crate::Cluster::kubeconfig), it opens an embedded cluster's socket.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        match &*self.access {
            KubeconfigSource::Written(path) => Ok(path.clone()),
            KubeconfigSource::OnDemand {
                cluster,
                user,
                groups,
                file,
            } => cluster
                .upgrade()
                .ok_or(Error::ClusterDropped)?
                .write_kubeconfig(user, groups, file),
        }
    }

    /// Grants the user exactly the rights of a role: creates or replaces the role, binds it to the user in the role's
    /// namespace, and returns when the server enforces it.
    ///
    /// In addition, the user has the rights of every authenticated user: discovery and self-reviews.
    ///
    /// ```no_run
    /// # async fn example(cluster: windlass_cluster::Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::{core::v1::Secret, rbac::v1::Role};
    /// use kube::{Api, api::ListParams};
    ///
    /// // The role that the program is installed with.
    /// let role: Role = serde_json::from_str(
    ///     r#"{"metadata": {"name": "robot", "namespace": "default"},
    ///         "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}"#,
    /// )?;
    /// let robot = cluster.user("robot", [""; 0]).await?.with_role(&role).await?;
    /// let secrets = Api::<Secret>::namespaced(robot.client(), "default");
    /// assert!(secrets.list(&ListParams::default()).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn with_role(self, role: &Role) -> Result<Self, Error> {
        let namespace = role.metadata.namespace.as_deref().unwrap_or("default");
        let (name, binding) = self.names(&role.metadata)?;
        let bound = RoleBinding {
            metadata: named(&binding, Some(namespace)),
            role_ref: reference("Role", &name),
            subjects: Some(vec![self.subject()]),
        };
        self.create_or_replace(&Api::namespaced(self.admin.clone(), namespace), &name, role)
            .await?;
        self.create_or_replace(&Api::namespaced(self.admin.clone(), namespace), &binding, &bound)
            .await?;
        self.wait_for_rules(namespace, role.rules.as_deref().unwrap_or_default(), &name)
            .await?;
        Ok(self)
    }

    /// Like [`with_role`](Self::with_role), for a cluster role and a cluster role binding. The binding gets the owner
    /// references of the role.
    pub async fn with_cluster_role(self, role: &ClusterRole) -> Result<Self, Error> {
        let (name, binding) = self.names(&role.metadata)?;
        let bound = ClusterRoleBinding {
            metadata: ObjectMeta {
                owner_references: role.metadata.owner_references.clone(),
                ..named(&binding, None)
            },
            role_ref: reference("ClusterRole", &name),
            subjects: Some(vec![self.subject()]),
        };
        self.create_or_replace(&Api::all(self.admin.clone()), &name, role)
            .await?;
        self.create_or_replace(&Api::all(self.admin.clone()), &binding, &bound)
            .await?;
        self.wait_for_rules("default", role.rules.as_deref().unwrap_or_default(), &name)
            .await?;
        Ok(self)
    }

    /// Returns the names of the role and the binding.
    fn names(&self, role: &ObjectMeta) -> Result<(String, String), Error> {
        let name = role.name.clone().ok_or(Error::EmptyRoleName)?;
        let binding = format!("{name}:{}", self.name).replace(['/', '%'], "-");
        Ok((name, binding))
    }

    fn subject(&self) -> Subject {
        Subject {
            api_group: Some(GROUP.to_owned()),
            kind: "User".to_owned(),
            name: self.name.clone(),
            namespace: None,
        }
    }

    /// Creates or replaces a role or binding; the API allows an update to create those.
    async fn create_or_replace<K>(&self, api: &Api<K>, name: &str, object: &K) -> Result<(), Error>
    where
        K: Resource + Clone + Serialize + DeserializeOwned + fmt::Debug,
    {
        let written = api.replace(name, &PostParams::default(), object).await;
        written
            .map(|_| ())
            .map_err(|source| self.bind_error(name, source))
    }

    /// Waits until a self subject rules review shows the role's rules.
    async fn wait_for_rules(&self, namespace: &str, rules: &[PolicyRule], role: &str) -> Result<(), Error> {
        let reviews = Api::<SelfSubjectRulesReview>::all(self.client.clone());
        let question = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let end = tokio::time::Instant::now() + BINDING_TIMEOUT;
        loop {
            let answer = reviews.create(&PostParams::default(), &question).await;
            let known = answer
                .map_err(|source| self.bind_error(role, source))?
                .status
                .unwrap_or_default();
            if rules.iter().all(|rule| contains_rule(rule, &known)) {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                return Err(Error::RoleNotEffective {
                    role: role.to_owned(),
                    user: self.name.clone(),
                });
            }
            tokio::time::sleep(BINDING_POLL_INTERVAL).await;
        }
    }

    fn bind_error(&self, role: &str, source: kube::Error) -> Error {
        Error::BindRole {
            role: role.to_owned(),
            user: self.name.clone(),
            source: Box::new(source),
        }
    }
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(BTreeMap::from([(
            "app.kubernetes.io/managed-by".to_owned(),
            "windlass".to_owned(),
        )])),
        ..ObjectMeta::default()
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: Some(GROUP.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn contains_rule(rule: &PolicyRule, known: &SubjectRulesReviewStatus) -> bool {
    let same = |own: &Option<Vec<String>>, other: &Option<Vec<String>>| {
        own.as_deref().unwrap_or_default() == other.as_deref().unwrap_or_default()
    };
    let on_resources = known.resource_rules.iter().any(|other| {
        rule.verbs == other.verbs
            && same(&rule.api_groups, &other.api_groups)
            && same(&rule.resources, &other.resources)
            && same(&rule.resource_names, &other.resource_names)
    });
    let on_paths = known
        .non_resource_rules
        .iter()
        .any(|other| rule.verbs == other.verbs && same(&rule.non_resource_urls, &other.non_resource_urls));
    on_resources || on_paths
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
