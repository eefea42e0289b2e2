//! `--enable-admission-plugins` and `--disable-admission-plugins`.

use anyhow::bail;
use windlass_apiserver::AdmissionPlugin;

use super::flags::Flags;

const ENABLE: &str = "enable-admission-plugins";
const DISABLE: &str = "disable-admission-plugins";

/// The plugins that a real server enables by default.
const DEFAULT: &[&str] = &[
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "JobValidation",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeDeclaredFeatureValidator",
    "PersistentVolumeClaimResize",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodResizeValidator",
    "PodSecurity",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// The plugins that a real server has, but does not enable by default. None of them is supported.
const OPTIONAL: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// The disabled plugins that have an effect here. Disabling any other plugin leaves it as it is: without effect.
pub(super) fn disabled(flags: &Flags) -> anyhow::Result<Vec<AdmissionPlugin>> {
    for flag in [ENABLE, DISABLE] {
        let is_unknown = |name: &&str| !DEFAULT.contains(name) && !OPTIONAL.contains(name);
        if let Some(name) = flags.list(flag).find(is_unknown) {
            bail!("--{flag}: plugin {name:?} is unknown");
        }
    }
    if let Some(name) = flags.list(ENABLE).find(|name| is_disabled(flags, name)) {
        bail!("{name} is in --{ENABLE} and in --{DISABLE}: remove it from one of them");
    }
    let all = AdmissionPlugin::ALL.into_iter();
    Ok(all.filter(|plugin| is_disabled(flags, &plugin.name())).collect())
}

fn is_disabled(flags: &Flags, name: &str) -> bool {
    flags.list(DISABLE).any(|disabled| disabled == name)
}

/// Warnings about enabled plugins that are not supported.
pub(super) fn warnings(flags: &Flags) -> impl Iterator<Item = String> {
    let unsupported = flags.list(ENABLE).filter(|name| OPTIONAL.contains(name));
    unsupported.map(|name| format!("--{ENABLE}={name} has no effect: the plugin is not supported"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drop_in::api_server::FLAGS;

    fn flags(line: &str) -> Flags {
        Flags::parse(FLAGS, line.split_whitespace().map(str::to_owned)).unwrap()
    }

    #[test]
    fn plugins_with_an_effect_are_enabled_by_default_and_can_be_disabled() {
        for plugin in AdmissionPlugin::ALL {
            let name = plugin.name();
            assert!(DEFAULT.contains(&&*name), "{name}");
            let line = format!("--disable-admission-plugins={name},LimitRanger");
            assert_eq!(disabled(&flags(&line)).unwrap(), [plugin], "{line}");
        }
        assert_eq!(disabled(&flags("")).unwrap(), []);
    }

    #[test]
    fn unknown_and_contradictory_plugins_are_rejected() {
        for (line, why) in [
            (
                "--disable-admission-plugins=ServiceAccounts",
                "--disable-admission-plugins: plugin \"ServiceAccounts\" is unknown",
            ),
            (
                "--enable-admission-plugins=Nothing",
                "--enable-admission-plugins: plugin \"Nothing\" is unknown",
            ),
            (
                "--enable-admission-plugins=Priority --disable-admission-plugins=Priority",
                "Priority is in --enable-admission-plugins and in --disable-admission-plugins: remove it from one of them",
            ),
        ] {
            assert_eq!(disabled(&flags(line)).unwrap_err().to_string(), why, "{line}");
        }
        let optional = flags("--enable-admission-plugins=NodeRestriction,Priority");
        let found: Vec<_> = warnings(&optional).collect();
        assert_eq!(
            found,
            ["--enable-admission-plugins=NodeRestriction has no effect: the plugin is not supported"]
        );
    }
}
