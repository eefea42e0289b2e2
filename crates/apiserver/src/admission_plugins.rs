//! The admission plugins by name, so that they can be disabled one by one.

/// A default admission plugin of a real server that has an effect here, too; see
/// [`Builder::without_admission_plugin`](crate::Builder::without_admission_plugin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionPlugin {
    /// Rejects new objects in namespaces that do not exist or are terminating, and the deletion of system namespaces.
    NamespaceLifecycle,
    /// Requires that a pod's service account exists, and mounts its token.
    ServiceAccount,
    /// Taints new nodes until they are ready.
    TaintNodesByCondition,
    /// Sets the priority of pods from their class.
    Priority,
    /// Lets pods tolerate nodes that are not ready for five minutes.
    DefaultTolerationSeconds,
    /// Sets the storage class of claims without one.
    DefaultStorageClass,
    /// Adds the finalizers that protect volumes and claims in use.
    StorageObjectInUseProtection,
    /// Sets the overhead and scheduling of pods with a runtime class.
    RuntimeClass,
    /// Restricts who approves certificate signing requests.
    CertificateApproval,
    /// Restricts who signs certificate signing requests.
    CertificateSigning,
    /// Sets the class of Ingresses without one.
    DefaultIngressClass,
    /// Lets MutatingAdmissionPolicies change what is written.
    MutatingAdmissionPolicy,
    /// Lets webhooks change what is written.
    MutatingAdmissionWebhook,
    /// Lets ValidatingAdmissionPolicies reject requests.
    ValidatingAdmissionPolicy,
    /// Lets webhooks reject requests.
    ValidatingAdmissionWebhook,
}

impl AdmissionPlugin {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::NamespaceLifecycle,
        Self::ServiceAccount,
        Self::TaintNodesByCondition,
        Self::Priority,
        Self::DefaultTolerationSeconds,
        Self::DefaultStorageClass,
        Self::StorageObjectInUseProtection,
        Self::RuntimeClass,
        Self::CertificateApproval,
        Self::CertificateSigning,
        Self::DefaultIngressClass,
        Self::MutatingAdmissionPolicy,
        Self::MutatingAdmissionWebhook,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionWebhook,
    ];

    /// Its name in a real server's `--disable-admission-plugins`.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// The admission plugins of a server. Default: all are enabled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdmissionPlugins {
    /// A bit for each plugin.
    disabled: u16,
}

impl AdmissionPlugins {
    pub(crate) fn disable(&mut self, plugin: AdmissionPlugin) {
        self.disabled |= 1 << plugin as u16;
    }

    pub(crate) fn has(self, plugin: AdmissionPlugin) -> bool {
        self.disabled & (1 << plugin as u16) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_disabled_one_by_one() {
        let mut plugins = AdmissionPlugins::default();
        for (index, plugin) in AdmissionPlugin::ALL.into_iter().enumerate() {
            assert!(plugins.has(plugin), "{plugin:?}");
            plugins.disable(plugin);
            let left = AdmissionPlugin::ALL
                .into_iter()
                .filter(|plugin| plugins.has(*plugin));
            assert!(left.eq(AdmissionPlugin::ALL.into_iter().skip(index + 1)));
        }
        assert_eq!(AdmissionPlugin::ServiceAccount.name(), "ServiceAccount");
    }
}
