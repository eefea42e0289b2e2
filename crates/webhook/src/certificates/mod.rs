//! The certificates of webhooks: made, trusted, served and renewed without another program.
//!
//! ```text
//!   Secret: CAs, leaf ──► Rotation ──► Secret           `rotation` decides, without I/O
//!   caBundle of each  ──► (+ time) ──► caBundle          `driver` asks the API server, and waits
//!   configuration                 └──► CertificateSlot ──► TLS
//! ```
//!
//! A leaf is valid for 90 days and renewed after 60; a CA for a year, and replaced after eight months. What all replicas
//! agree on is the Secret, which they change by compare-and-swap:
//!
//! 1. A new CA is written to the Secret beside the old one, and joins every `caBundle`.
//! 2. Once every bundle that is read back has it, it signs the next leaf. So no server ever presents a chain that is not
//!    trusted yet.
//! 3. The old CA stays in the bundles until the last leaf that it signed has expired, since another replica may still serve
//!    it.
//!
//! Whatever is missing or broken (a deleted Secret, a wiped `caBundle`, a leaf of the future after the clock was set back) is
//! found by the same comparison and made again.

mod authority;
mod bundle;
mod der;
mod driver;
mod files;
mod rotation;
mod slot;
mod stored;

pub(crate) use self::{
    driver::{BundleTarget, Certificates, SecretStore, TargetKind},
    files::CertificateFiles,
    slot::{CertificateSlot, Readiness},
};

/// Seconds since 1970, the precision of certificates.
pub(crate) type Seconds = i64;
