//! The API server's serving certificate and client CAs.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// The location of the serving certificate and its key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServingCertificate {
    /// In these files, which must exist.
    Files { certificate: PathBuf, key: PathBuf },
    /// In this folder, as `apiserver.crt` and `apiserver.key`; created if missing.
    Folder(PathBuf),
}

/// A certificate chain and the key of its first certificate.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ServingCertificate {
    /// Reads the certificate; creates one for `host` if necessary.
    pub(super) fn load(&self, host: &str) -> anyhow::Result<Identity> {
        match self {
            Self::Files { certificate, key } => {
                read((certificate, "--tls-cert-file"), (key, "--tls-private-key-file"))
            }
            Self::Folder(folder) => {
                let (certificate, key) = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
                if !certificate.exists() && !key.exists() {
                    create(&certificate, &key, host)?;
                }
                read((&certificate, "--cert-dir"), (&key, "--cert-dir"))
            }
        }
    }
}

/// Reads the certificates in a file that was given by `flag`.
pub(super) fn chain(file: &Path, flag: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found =
        found.with_context(|| format!("cannot read certificates from {} ({flag})", file.display()))?;
    ensure!(
        !found.is_empty(),
        "{} ({flag}) has no certificate",
        file.display()
    );
    Ok(found)
}

fn read(certificate: (&Path, &str), key: (&Path, &str)) -> anyhow::Result<Identity> {
    let chain = chain(certificate.0, certificate.1)?;
    let (file, flag) = key;
    let key = PrivateKeyDer::from_pem_file(file)
        .with_context(|| format!("cannot read a private key from {} ({flag})", file.display()))?;
    Ok((chain, key))
}

/// Creates a self-signed certificate, as a real server does if there is none.
fn create(certificate: &Path, key: &Path, host: &str) -> anyhow::Result<()> {
    let mut names = vec![host.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    names.dedup();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, host);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pair = KeyPair::generate()?;
    let made = params.self_signed(&pair)?;
    let folder = certificate.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {} (--cert-dir)", folder.display()))?;
    write(key, &pair.serialize_pem(), 0o600)?;
    write(certificate, &made.pem(), 0o644)
}

fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(file);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    match written {
        // Another server with the same folder created it first.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result.with_context(|| format!("cannot write {} (--cert-dir)", file.display())),
    }
}
