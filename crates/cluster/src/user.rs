//! Users of a cluster, and the rights that a test gives them.

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

use crate::{Error, embedded::InProcess};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A real server hears of a new binding a moment after it was written. Waiting longer than this means that it never will.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// A user of a [`Cluster`](crate::Cluster), made with [`Cluster::user`](crate::Cluster::user).
#[derive(Clone)]
pub struct User {
    name: String,
    client: Client,
    /// Writes the roles and bindings.
    admin: Client,
    access: Arc<UserAccess>,
}

/// Where a user's kubeconfig comes from.
pub(crate) enum UserAccess {
    /// It is there.
    Written(PathBuf),
    /// The embedded server writes it when somebody asks, because it opens a socket for it.
    Later {
        cluster: Weak<InProcess>,
        user: String,
        groups: Vec<String>,
        file: String,
    },
}

impl UserAccess {
    pub(crate) fn later(cluster: &Arc<InProcess>, user: &str, groups: &[String], file: String) -> Self {
        Self::Later {
            cluster: Arc::downgrade(cluster),
            user: user.to_owned(),
            groups: groups.to_owned(),
            file,
        }
    }
}

impl User {
    pub(crate) fn new(name: String, client: Client, admin: Client, access: UserAccess) -> Self {
        Self {
            name,
            client,
            admin,
            access: Arc::new(access),
        }
    }

    /// The name that the API server and RBAC know.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client that acts as this user.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig file for the same. It is removed with the cluster. As [`Cluster::kubeconfig`](crate::Cluster::kubeconfig),
    /// it opens an embedded cluster's socket.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        match &*self.access {
            UserAccess::Written(path) => Ok(path.clone()),
            UserAccess::Later {
                cluster,
                user,
                groups,
                file,
            } => cluster
                .upgrade()
                .ok_or(Error::ClusterGone)?
                .write_access(user, groups, file),
        }
    }

    /// Gives the user the rights of a role, and no others: writes the role, binds it to the user in the role's namespace,
    /// and returns when the server acts on it. A role of that name that is there already is replaced.
    ///
    /// Beside these, a user has what every authenticated one has: discovery, and questions about itself.
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
        self.put(&Api::namespaced(self.admin.clone(), namespace), &name, role)
            .await?;
        self.put(&Api::namespaced(self.admin.clone(), namespace), &binding, &bound)
            .await?;
        self.hears_of(namespace, role.rules.as_deref().unwrap_or_default(), &name)
            .await?;
        Ok(self)
    }

    /// The same with a cluster role, in all namespaces and outside of them. The binding has the role's owners.
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
        self.put(&Api::all(self.admin.clone()), &name, role).await?;
        self.put(&Api::all(self.admin.clone()), &binding, &bound).await?;
        self.hears_of("default", role.rules.as_deref().unwrap_or_default(), &name)
            .await?;
        Ok(self)
    }

    /// The role's name, and that of the binding.
    fn names(&self, role: &ObjectMeta) -> Result<(String, String), Error> {
        let name = role.name.clone().ok_or(Error::NamelessRole)?;
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

    /// Roles and bindings can be written before they are there.
    async fn put<K>(&self, api: &Api<K>, name: &str, object: &K) -> Result<(), Error>
    where
        K: Resource + Clone + Serialize + DeserializeOwned + fmt::Debug,
    {
        let written = api.replace(name, &PostParams::default(), object).await;
        written.map(|_| ()).map_err(|source| self.refused(name, source))
    }

    /// Waits until the user's own rules show those of the role.
    async fn hears_of(&self, namespace: &str, rules: &[PolicyRule], role: &str) -> Result<(), Error> {
        let reviews = Api::<SelfSubjectRulesReview>::all(self.client.clone());
        let question = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = reviews.create(&PostParams::default(), &question).await;
            let known = answer
                .map_err(|source| self.refused(role, source))?
                .status
                .unwrap_or_default();
            if rules.iter().all(|rule| is_among(rule, &known)) {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                return Err(Error::RoleUnheard {
                    role: role.to_owned(),
                    user: self.name.clone(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn refused(&self, role: &str, source: kube::Error) -> Error {
        Error::RoleRefused {
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

/// Whether a review shows a rule.
fn is_among(rule: &PolicyRule, known: &SubjectRulesReviewStatus) -> bool {
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
