//! Certificates from files, such as a Secret of cert-manager that is mounted into the pod.

use std::{future::Future, path::PathBuf, pin::pin, time::Duration};

use futures::FutureExt;

use windlass_clock::Clock;

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
                // The issuer may be late. What was served before has expired too.
                Ok(()) if !slot.is_valid(Clock::system().now().as_second()) => {
                    let folder = self.folder.display();
                    ready.set(Err(format!(
                        "the certificate in {folder} is not valid at this time"
                    )));
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::authority::{Authority, LEAF_LIFETIME};

    /// Writes a certificate that was issued at this time.
    fn write(folder: &std::path::Path, issued: crate::certificates::Seconds) {
        let authority = Authority::generate("hooks", issued).expect("a CA");
        let leaf = authority
            .issue(&["hooks.system.svc".to_owned()], issued)
            .expect("a leaf");
        std::fs::write(folder.join("tls.crt"), leaf.chain).expect("written");
        std::fs::write(folder.join("tls.key"), leaf.key).expect("written");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_files_are_not_ready_until_they_are_renewed() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Clock::system().now().as_second();
        // A minute is left.
        write(folder.path(), now - LEAF_LIFETIME + 60);
        let (slot, ready) = (CertificateSlot::default(), Readiness::new());
        let files = CertificateFiles::new(folder.path());
        let check = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(ready.get(), Ok(()));
            tokio::time::sleep(Duration::from_mins(2)).await;
            let why = ready.get().expect_err("expired");
            assert!(why.contains("not valid at this time"), "{why}");
            write(folder.path(), now);
            tokio::time::sleep(INTERVAL * 2).await;
            assert_eq!(ready.get(), Ok(()));
            // A half-written pair does not replace a good one.
            std::fs::write(folder.path().join("tls.key"), "x").expect("written");
            tokio::time::sleep(INTERVAL * 2).await;
            assert_eq!(ready.get(), Ok(()));
        };
        files.run(&slot, &ready, None, check).await;
    }
}
