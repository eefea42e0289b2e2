//! Controllers that maintain a cluster: garbage collection, namespace deletion, service accounts, disruption budgets,
//! event expiry, the protection of storage in use, and type checks of admission policies.
//!
//! ```text
//!   garbage_collector ──► deletes objects without owners ─────────┐
//!   namespaces ─────────► deletes the content of terminating ones ┴──► kinds: discovery
//!   namespace_defaults ─► creates the default service account and kube-root-ca.crt
//!   budgets ────────────► updates the status of PodDisruptionBudgets
//!   expiry ─────────────► deletes old events
//!   storage_protection ─► removes the finalizers of deleted claims and volumes that nothing uses
//!   policy_types ───────► writes what is wrong with the types of a ValidatingAdmissionPolicy into its status
//! ```

mod budgets;
mod expiry;
mod garbage_collector;
mod kinds;
mod namespace_defaults;
mod namespaces;
mod objects;
mod policy_types;
mod storage_protection;

use windlass_runtime::Manager;

use super::Settings;

/// Field manager of the writes, as on a real control plane.
const FIELD_MANAGER: &str = "kube-controller-manager";

pub(crate) fn add(manager: Manager, settings: &Settings) -> Manager {
    let manager = garbage_collector::add(manager);
    let manager = namespaces::add(manager, settings);
    let manager = namespace_defaults::add(manager, settings);
    let manager = budgets::add(manager);
    let manager = expiry::add(manager);
    let manager = storage_protection::add(manager);
    policy_types::add(manager)
}
