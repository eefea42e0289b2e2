//! Certificates from files, such as a Secret of cert-manager that is mounted into the pod.

use std::{future::Future, path::PathBuf, pin::pin, time::Duration};

use futures::FutureExt;

use crate::install::{CaBundle, InstallPhase, Installer};

use super::{CertificateSlot, Readiness, stored};

/// How often the files are read. The kubelet updates a mounted Secret within a minute or two.
const INTERVAL: Duration = Duration::from_secs(10);

/// The largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// A folder with `tls.crt` and `tls.key`.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    folder: PathBuf,
}

impl CertificateFiles {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Serves what the files have, again and again. A half-written pair does not replace a good one.
    ///
    /// With an installer the webhooks are registered once there is a certificate, with the `caBundle` of the file `ca.crt`, if
    /// there is one. Without that file, who issues the certificates (cert-manager, by an annotation) also injects it.
    ///
    /// It runs until `stop` completes, and then ends after the request that is under way.
    pub(crate) async fn run(
        &self,
        slot: &CertificateSlot,
        ready: &Readiness,
        installer: Option<&Installer>,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        let mut phase = InstallPhase::Start;
        while stop.as_mut().now_or_never().is_none() {
            let mut loaded = self.load(slot).await;
            if let (Ok(()), Some(installer)) = (&loaded, installer) {
                let bundle = self.read(stored::BUNDLE_KEY).await.ok();
                let bundle = bundle.as_deref().map_or(CaBundle::Injected, CaBundle::File);
                // Later, what was deleted comes back, and a new bundle is written.
                match installer.install(bundle, phase).await {
                    Ok(_) => phase = InstallPhase::Repair,
                    Err(error) => loaded = Err(format!("cannot register the webhooks: {error}")),
                }
            }
            match loaded {
                Ok(()) => ready.set(Ok(())),
                Err(why) if slot.is_served() && ready.get().is_ok() => {
                    tracing::warn!(why, "the certificate could not be reloaded; the old one stays");
                }
                Err(why) => ready.set(Err(why)),
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = &mut stop => return,
            }
        }
    }

    async fn load(&self, slot: &CertificateSlot) -> Result<(), String> {
        let (chain, key) = futures::join!(
            self.read(stored::CERTIFICATE_KEY),
            self.read(stored::PRIVATE_KEY_KEY)
        );
        slot.serve(&chain?, &key?)
            .map_err(|why| format!("cannot use the certificate in {}: {why}", self.folder.display()))
    }

    async fn read(&self, name: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
        let size = tokio::fs::metadata(&path)
            .await
            .map_err(|error| failed(&error))?
            .len();
        if size > MAX_BYTES {
            return Err(failed(&"the file is too large"));
        }
        tokio::fs::read_to_string(&path)
            .await
            .map_err(|error| failed(&error))
    }
}
