//! CRDs at start: there, established and served before a controller needs them.
//!
//! ```text
//!   each CRD:  look ──► would it lose stored objects? refuse ──► apply, if asked ──► look again … ──► served
//!                ▲                                                   │ changed meanwhile
//!                └───────────────────────────────────────────────────┘
//! ```
//!
//! Every look is a live read; a step that cannot be taken yet is tried again until the deadline, and the error says what
//! was missing at the last look.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout};

use crate::writer::{Apply, WriteError, Writer};

/// How long it takes at most, unless said otherwise. A real server needs a second or two.
const DEADLINE: Duration = Duration::from_mins(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long refused names may stand before they are believed: right after a change the server has not looked yet.
const NAMES_SETTLE: Duration = Duration::from_secs(2);

/// Sees to it that CRDs are served before controllers start.
///
/// By default it waits for them; with [`apply`](Self::apply) it also installs and updates them.
///
/// ```no_run
/// # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
/// # use windlass_runtime::{Install, InstallError, Writer};
/// # async fn example(writer: Writer, foo: CustomResourceDefinition) -> Result<(), InstallError> {
/// Install::new([foo]).apply().run(&writer).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is installed before `run`"]
pub struct Install {
    crds: Vec<CustomResourceDefinition>,
    apply: bool,
    deadline: Duration,
}

/// Why CRDs are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Objects may be stored in versions that the new manifest does not have: nobody could read them any more.
    /// Nothing was written.
    #[error(
        "CRD {crd} would lose stored objects: they may be stored in {}, and the new manifest has only {}: keep the \
         missing versions in the manifest (a newer program has them), or migrate the objects and take those versions \
         out of status.storedVersions",
        list(stored),
        list(known)
    )]
    DropsStored {
        /// The CRD's name.
        crd: String,
        /// Versions in which objects may be stored and which the manifest does not have.
        stored: Vec<String>,
        /// The versions of the manifest.
        known: Vec<String>,
    },
    /// Another CRD of the same group has one of the names.
    #[error(
        "the server does not accept the names of CRD {crd}: {message}: rename it, or delete the CRD that has them"
    )]
    NamesNotAccepted {
        /// The CRD's name.
        crd: String,
        /// What the server says.
        message: String,
    },
    /// A CRD could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A CRD could not be read.
    #[error("cannot read CRD {crd}: {message}")]
    Read {
        /// The CRD's name.
        crd: String,
        /// What the server says.
        message: String,
    },
    /// The time is over.
    #[error("not served after {} s: {}", waited.as_secs(), missing.join("; "))]
    Deadline {
        /// How long it took.
        waited: Duration,
        /// For each CRD that is not served, what is missing.
        missing: Vec<String>,
    },
}

impl Install {
    /// These CRDs, for example `[Foo::crd()]`.
    pub fn new(crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        Self {
            crds: crds.into_iter().collect(),
            apply: false,
            deadline: DEADLINE,
        }
    }

    /// Applies them first, and takes over fields that others, such as an installer, own. Default: somebody else
    /// installs them.
    pub fn apply(mut self) -> Self {
        self.apply = true;
        self
    }

    /// How long it may take. Default: 60 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns when every CRD is established and every version of it that is to be served is found in discovery.
    ///
    /// Before the first write, all of them are held against what is stored: a manifest that misses a version in which
    /// objects may be stored is refused. With a writer that only rehearses, the server checks the manifests, and nothing
    /// is waited for.
    pub async fn run(self, writer: &Writer) -> Result<(), InstallError> {
        let started = Instant::now();
        let mut steps: Vec<_> = self.crds.iter().map(Step::new).collect();
        match timeout(self.deadline, self.work(writer, &mut steps)).await {
            Ok(done) => done,
            Err(_) => Err(InstallError::Deadline {
                waited: started.elapsed(),
                missing: steps.into_iter().filter_map(Step::missing).collect(),
            }),
        }
    }

    async fn work(&self, writer: &Writer, steps: &mut [Step<'_>]) -> Result<(), InstallError> {
        let definitions = &Api::<CustomResourceDefinition>::all(writer.client().clone());
        if self.apply {
            for step in &mut *steps {
                if let Some(live) = step.look(definitions).await? {
                    keeps_stored_versions(step.crd, &live)?;
                }
            }
            for step in &mut *steps {
                step.apply(writer, definitions).await?;
            }
            if writer.is_dry_run() {
                return Ok(());
            }
        }
        let waits = steps.iter_mut().map(|step| step.wait(writer, definitions));
        try_join_all(waits).await.map(drop)
    }
}

/// One CRD on its way.
struct Step<'a> {
    crd: &'a CustomResourceDefinition,
    /// What it waits for; `None` when it is served.
    waits_for: Option<String>,
}

impl<'a> Step<'a> {
    fn new(crd: &'a CustomResourceDefinition) -> Self {
        Self {
            crd,
            waits_for: Some("the server does not answer".to_owned()),
        }
    }

    fn missing(self) -> Option<String> {
        let why = self.waits_for?;
        Some(format!("CRD {}: {why}", self.crd.name_any()))
    }

    async fn pause(&mut self, why: impl Into<String>) {
        self.waits_for = Some(why.into());
        sleep(PAUSE).await;
    }

    /// What the server has. Tries again where that can help.
    async fn look(
        &mut self,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<Option<CustomResourceDefinition>, InstallError> {
        let crd = self.crd.name_any();
        loop {
            match definitions.get_opt(&crd).await {
                Ok(live) => return Ok(live),
                Err(kube::Error::Api(status)) if !is_passing(status.code) => {
                    return Err(InstallError::Read {
                        crd,
                        message: status.message,
                    });
                }
                Err(error) => self.pause(format!("it cannot be read: {error}")).await,
            }
        }
    }

    /// Applies exactly onto what was held against the stored versions.
    async fn apply(
        &mut self,
        writer: &Writer,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<(), InstallError> {
        let mut wanted = self.crd.clone();
        wanted.status = None;
        loop {
            let live = self.look(definitions).await?.unwrap_or_default();
            if live.metadata.deletion_timestamp.is_some() {
                self.pause("it is being deleted, with all its objects").await;
                continue;
            }
            keeps_stored_versions(self.crd, &live)?;
            let mut how = Apply::default().force();
            wanted.metadata.resource_version = live.metadata.resource_version;
            wanted.metadata.uid = live.metadata.uid;
            // A CRD that comes up in between cannot be named here. The server itself then refuses to drop what it stores.
            if wanted.metadata.uid.is_some() {
                how = how.same_object().same_version();
            }
            match writer.apply_with(&wanted, how).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() || error.is_other_object() => {
                    self.pause("it changes while it is applied").await;
                }
                Err(error) if error.status().is_none_or(|status| is_passing(status.code)) => {
                    self.pause(error.to_string()).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until it is served.
    async fn wait(
        &mut self,
        writer: &Writer,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<(), InstallError> {
        let mut refused = None;
        loop {
            let Some(live) = self.look(definitions).await? else {
                self.pause("it is not installed: install it, or start with --install")
                    .await;
                continue;
            };
            if let Some(message) = refused_names(&live) {
                let since = *refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= NAMES_SETTLE {
                    let crd = self.crd.name_any();
                    return Err(InstallError::NamesNotAccepted { crd, message });
                }
                self.pause(format!("its names are not accepted: {message}")).await;
            } else if let Some(why) = unestablished(&live) {
                self.pause(why).await;
            } else if let Some(version) = unserved(writer.client(), self.crd).await {
                self.pause(format!("the server does not serve {version}")).await;
            } else {
                self.waits_for = None;
                return Ok(());
            }
        }
    }
}

/// Whether a request that was answered so may work a moment later.
fn is_passing(code: u16) -> bool {
    code == 429 || code >= 500
}

fn keeps_stored_versions(
    wanted: &CustomResourceDefinition,
    live: &CustomResourceDefinition,
) -> Result<(), InstallError> {
    let known: Vec<_> = wanted
        .spec
        .versions
        .iter()
        .map(|version| version.name.clone())
        .collect();
    let stored = live
        .status
        .iter()
        .flat_map(|status| status.stored_versions.iter().flatten());
    let stored: Vec<_> = stored
        .filter(|version| !known.contains(version))
        .cloned()
        .collect();
    if stored.is_empty() {
        return Ok(());
    }
    let crd = wanted.name_any();
    Err(InstallError::DropsStored { crd, stored, known })
}

fn condition<'a>(
    crd: &'a CustomResourceDefinition,
    kind: &str,
) -> Option<&'a CustomResourceDefinitionCondition> {
    let mut conditions = crd
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == kind)
}

/// What the server says of names that it does not accept.
fn refused_names(crd: &CustomResourceDefinition) -> Option<String> {
    let names = condition(crd, "NamesAccepted").filter(|names| names.status == "False")?;
    Some(
        names
            .message
            .clone()
            .or_else(|| names.reason.clone())
            .unwrap_or_default(),
    )
}

/// Why it is not established.
fn unestablished(crd: &CustomResourceDefinition) -> Option<String> {
    if crd.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted, with all its objects".to_owned());
    }
    match condition(crd, "Established") {
        Some(established) if established.status == "True" => None,
        Some(established) => {
            let why = established.message.as_deref().or(established.reason.as_deref());
            Some(format!(
                "it is not established: {}",
                why.unwrap_or("no reason given")
            ))
        }
        None => Some("it is not established: the server has not looked at it yet".to_owned()),
    }
}

/// A version that is to be served and cannot be found, as `group/version`.
async fn unserved(client: &Client, crd: &CustomResourceDefinition) -> Option<String> {
    let plural = &crd.spec.names.plural;
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let version = format!("{}/{}", crd.spec.group, version.name);
        let served = client.list_api_group_resources(&version).await;
        if !served.is_ok_and(|served| served.resources.iter().any(|resource| resource.name == *plural)) {
            return Some(version);
        }
    }
    None
}

fn list(versions: &[String]) -> String {
    versions.join(", ")
}
