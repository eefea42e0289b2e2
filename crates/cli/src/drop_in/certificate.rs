//! The certificates that the API server shows and asks for.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Where the server's own certificate and its key are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// In these files, which must be there.
    Files { certificate: PathBuf, key: PathBuf },
    /// In this folder, as `apiserver.crt` and `apiserver.key`; made there if they are not.
    Folder(PathBuf),
}

/// A chain and the key of its first certificate.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Own {
    /// Reads the certificate; `host` is for whom it is made if it has to be.
    pub(super) fn identity(&self, host: &str) -> anyhow::Result<Identity> {
        match self {
            Self::Files { certificate, key } => {
                read((certificate, "--tls-cert-file"), (key, "--tls-private-key-file"))
            }
            Self::Folder(folder) => {
                let (certificate, key) = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
                if !certificate.exists() && !key.exists() {
                    make(&certificate, &key, host)?;
                }
                read((&certificate, "--cert-dir"), (&key, "--cert-dir"))
            }
        }
    }
}

/// The certificates of a file; `flag` is who named it.
pub(super) fn chain(file: &Path, flag: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found =
        found.with_context(|| format!("cannot read certificates from {} ({flag})", file.display()))?;
    ensure!(
        !found.is_empty(),
        "{} ({flag}) has no certificate in it",
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

/// Makes a certificate that signs itself, as a real server does where it finds none.
fn make(certificate: &Path, key: &Path, host: &str) -> anyhow::Result<()> {
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
        .with_context(|| format!("cannot make the folder {} (--cert-dir)", folder.display()))?;
    write(key, &pair.serialize_pem(), 0o600)?;
    write(certificate, &made.pem(), 0o644)
}

fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(file);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    match written {
        // Another server that was started on the same folder made it first.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result.with_context(|| format!("cannot write {} (--cert-dir)", file.display())),
    }
}
