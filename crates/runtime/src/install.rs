//! Installs CRDs, or waits for them.
//!
//! ```text
//!   each CRD:  get ──► would it drop stored versions? fail ──► apply, if enabled ──► poll until served
//!               ▲                                                  │ conflict
//!               └──────────────────────────────────────────────────┘
//! ```
//!
//! All reads are live. A step that is not possible yet is retried until the deadline, and the error names what was missing
//! last.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout};
use windlass_api::{conditions, status::StatusClass};
use windlass_cache::is_connection_error;

use crate::writer::{ApplyOptions, WriteError, Writer};

/// Default deadline. A real server needs a second or two.
const DEADLINE: Duration = Duration::from_mins(1);
/// Delay between two reads.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// When a missing CRD is logged again, and the longest time between two lines.
const FIRST_REPEAT: Duration = Duration::from_secs(10);
const LONGEST_REPEAT: Duration = Duration::from_mins(10);
/// How long a CRD may take before it is logged that it is not served yet. A real server needs a second or two.
const SERVED_SOON: Duration = Duration::from_secs(5);
/// How long `NamesAccepted` must be false to count: right after a change the condition is not up to date.
const NAMES_SETTLE_TIME: Duration = Duration::from_secs(2);

/// Ensures that CRDs are served.
///
/// By default it waits for them; with [`apply`](Self::apply) it also installs and updates them. In a
/// [manager](crate::Manager::install) without `apply` each controller waits for its own kinds instead.
///
/// ```no_run
/// # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
/// # use windlass_runtime::{CrdInstaller, InstallError, Writer};
/// # async fn example(writer: Writer, foo: CustomResourceDefinition) -> Result<(), InstallError> {
/// CrdInstaller::new([foo]).apply().run(&writer).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is installed before `run`"]
pub struct CrdInstaller {
    crds: Vec<CustomResourceDefinition>,
    apply: bool,
    deadline: Duration,
}

/// Why CRDs are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Objects may be stored in versions that the new manifest does not have, and would become unreadable. Nothing was
    /// written.
    #[error(
        "CRD {crd} would lose stored objects: they may be stored in {}, and the new manifest has only {}: keep the \
         missing versions in the manifest (a newer program has them), or migrate the objects and remove those versions \
         from status.storedVersions",
        list(stored),
        list(known)
    )]
    DropsStoredVersions {
        /// The CRD's name.
        crd: String,
        /// Stored versions that the manifest does not have.
        stored: Vec<String>,
        /// The versions of the manifest.
        known: Vec<String>,
    },
    /// Another CRD of the same group has one of the names.
    #[error(
        "the server does not accept the names of CRD {crd}: {message}: rename it, or delete the conflicting CRD"
    )]
    NamesNotAccepted {
        /// The CRD's name.
        crd: String,
        /// The server's message.
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
        /// The server's message.
        message: String,
    },
    /// The deadline has passed.
    #[error("not served after {} s: {}", waited.as_secs(), missing.join("; "))]
    Deadline {
        /// The time waited.
        waited: Duration,
        /// What is missing, for each CRD that is not served.
        missing: Vec<String>,
    },
}

impl CrdInstaller {
    /// Waits for these CRDs, for example `[Foo::crd()]`.
    pub fn new(crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        Self {
            crds: crds.into_iter().collect(),
            apply: false,
            deadline: DEADLINE,
        }
    }

    /// Applies the CRDs first, and takes over fields of other managers, such as an installer. A conversion webhook that is
    /// registered stays, if the manifest has one too. Default: the CRDs are installed by other means.
    pub fn apply(mut self) -> Self {
        self.apply = true;
        self
    }

    pub(crate) fn is_applied(&self) -> bool {
        self.apply
    }

    /// The names of the CRDs.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.crds.iter().map(ResourceExt::name_any)
    }

    /// Maximum time for all CRDs. Default: 60 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Completes when every CRD is established and all its served versions are in discovery.
    ///
    /// Before the first write, all manifests are compared with the stored versions: a manifest without a version in which
    /// objects may be stored is an error. With a dry-run writer, the server validates the manifests and nothing is awaited.
    pub async fn run(self, writer: &Writer) -> Result<(), InstallError> {
        let started = Instant::now();
        let mut steps: Vec<_> = self.crds.iter().map(CrdProgress::new).collect();
        match timeout(self.deadline, self.work(writer, &mut steps)).await {
            Ok(done) => done,
            Err(_) => Err(InstallError::Deadline {
                waited: started.elapsed(),
                missing: steps.into_iter().filter_map(CrdProgress::into_missing).collect(),
            }),
        }
    }

    async fn work(&self, writer: &Writer, steps: &mut [CrdProgress<'_>]) -> Result<(), InstallError> {
        let definitions = &Api::<CustomResourceDefinition>::all(writer.client().clone());
        if self.apply {
            for step in &mut *steps {
                if let Some(live) = step.get_live(definitions).await? {
                    check_stored_versions(step.crd, &live)?;
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

struct CrdProgress<'a> {
    crd: &'a CustomResourceDefinition,
    /// What is missing; `None` when it is served.
    missing: Option<String>,
    /// When to log what is missing, and the time until the next line after that.
    next_line: Instant,
    repeat: Duration,
}

impl<'a> CrdProgress<'a> {
    fn new(crd: &'a CustomResourceDefinition) -> Self {
        Self {
            crd,
            missing: Some("the server does not answer".to_owned()),
            next_line: Instant::now() + SERVED_SOON,
            repeat: FIRST_REPEAT,
        }
    }

    fn into_missing(self) -> Option<String> {
        let why = self.missing?;
        Some(format!("CRD {}: {why}", self.crd.name_any()))
    }

    async fn pause(&mut self, why: impl Into<String>) {
        let why = self.missing.insert(why.into());
        if Instant::now() >= self.next_line {
            tracing::warn!(crd = self.crd.name_any(), reason = why, "waiting for a CRD");
            self.next_line = Instant::now() + self.repeat;
            self.repeat = (self.repeat * 2).min(LONGEST_REPEAT);
        }
        sleep(POLL_INTERVAL).await;
    }

    /// Reads the CRD from the server. Retries transient errors.
    async fn get_live(
        &mut self,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<Option<CustomResourceDefinition>, InstallError> {
        let crd = self.crd.name_any();
        loop {
            match definitions.get_opt(&crd).await {
                Ok(live) => return Ok(live),
                Err(kube::Error::Api(status)) if !StatusClass::of(&status).is_transient() => {
                    return Err(InstallError::Read {
                        crd,
                        message: status.message,
                    });
                }
                Err(error) if is_connection_error(&error) => {
                    // The connection's log has it.
                    self.missing = Some(format!("cannot read it: {error}"));
                    sleep(POLL_INTERVAL).await;
                }
                Err(error) => self.pause(format!("cannot read it: {error}")).await,
            }
        }
    }

    /// Applies the CRD, with the version whose stored versions were checked as precondition.
    async fn apply(
        &mut self,
        writer: &Writer,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<(), InstallError> {
        let mut wanted = self.crd.clone();
        wanted.status = None;
        loop {
            let live = self.get_live(definitions).await?.unwrap_or_default();
            if live.metadata.deletion_timestamp.is_some() {
                self.pause("it is being deleted, with all its objects").await;
                continue;
            }
            check_stored_versions(self.crd, &live)?;
            wanted.spec.conversion = self.crd.spec.conversion.clone();
            if has_conversion_webhook(&live) && has_conversion_webhook(&wanted) {
                // It is registered, perhaps by another replica, with an address and certificates that the manifest does not know.
                wanted.spec.conversion = live.spec.conversion;
            }
            let mut options = ApplyOptions::default();
            wanted.metadata.resource_version = live.metadata.resource_version;
            wanted.metadata.uid = live.metadata.uid;
            // A CRD that is created in between has no precondition. The server itself refuses to drop stored versions.
            if wanted.metadata.uid.is_some() {
                options = options.require_uid().require_resource_version();
            }
            match writer.apply_with(&wanted, options).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() || error.is_uid_mismatch() => {
                    self.pause("it changed during the apply").await;
                }
                Err(error) if error.class().is_none_or(StatusClass::is_transient) => {
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
            let Some(live) = self.get_live(definitions).await? else {
                if self.repeat == FIRST_REPEAT {
                    // A person must act, so the first line comes at once.
                    self.next_line = self.next_line.min(Instant::now());
                }
                self.pause("it is not installed: install it, or start with --install")
                    .await;
                continue;
            };
            if let Some(message) = rejected_names_message(&live) {
                let since = *refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= NAMES_SETTLE_TIME {
                    let crd = self.crd.name_any();
                    return Err(InstallError::NamesNotAccepted { crd, message });
                }
                self.pause(format!("its names are not accepted: {message}")).await;
            } else if let Some(why) = not_established_reason(&live) {
                self.pause(why).await;
            } else if let Some(version) = find_unserved_version(writer.client(), self.crd).await {
                self.pause(format!("the server does not serve {version}")).await;
            } else {
                self.missing = None;
                return Ok(());
            }
        }
    }
}

fn has_conversion_webhook(crd: &CustomResourceDefinition) -> bool {
    let conversion = crd.spec.conversion.as_ref();
    conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
}

fn check_stored_versions(
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
    Err(InstallError::DropsStoredVersions { crd, stored, known })
}

/// The server's message if it does not accept the names.
fn rejected_names_message(crd: &CustomResourceDefinition) -> Option<String> {
    let names = conditions::find(crd, "NamesAccepted").filter(|names| names.status == "False")?;
    Some(
        names
            .message
            .clone()
            .or_else(|| names.reason.clone())
            .unwrap_or_default(),
    )
}

/// Why the CRD is not established; `None` if it is.
fn not_established_reason(crd: &CustomResourceDefinition) -> Option<String> {
    if crd.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted, with all its objects".to_owned());
    }
    match conditions::find(crd, "Established") {
        Some(established) if established.status == "True" => None,
        Some(established) => {
            let why = established.message.as_deref().or(established.reason.as_deref());
            Some(format!(
                "it is not established: {}",
                why.unwrap_or("no reason given")
            ))
        }
        None => Some("it is not established: it has no Established condition yet".to_owned()),
    }
}

/// A served version that is not in discovery, as `group/version`.
async fn find_unserved_version(client: &Client, crd: &CustomResourceDefinition) -> Option<String> {
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
