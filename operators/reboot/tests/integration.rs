//! Tests of the programs `reboot` and `reboot-agent`, their manifests and their pages.

mod attacks_host;
mod manifests;
mod page;
mod process;
mod rehearsal;
