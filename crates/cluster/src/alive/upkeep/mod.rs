//! What keeps a cluster tidy: owners' children are collected, namespaces empty themselves and have what pods need,
//! disruption budgets are counted, and old events go.
//!
//! ```text
//!   collector ──► deletes what has lost its owners ────┐
//!   namespaces ─► empties those that terminate ────────┴──► kinds: what the server serves
//!   provisions ─► gives every namespace what its pods need
//!   budgets ────► counts what disruption budgets allow       expiry ──► deletes old events
//! ```

mod budgets;
mod collector;
mod expiry;
mod kinds;
mod namespaces;
mod objects;
mod provisions;

use windlass_runtime::Manager;

use super::Settings;

/// Who the server notes as the author of what these controllers write, as on a real control plane.
const FIELD_MANAGER: &str = "kube-controller-manager";

pub(crate) fn add(manager: Manager, settings: &Settings) -> Manager {
    let manager = collector::add(manager);
    let manager = namespaces::add(manager, settings);
    let manager = provisions::add(manager, settings);
    let manager = budgets::add(manager, settings);
    expiry::add(manager)
}
