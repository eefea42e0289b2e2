//! Under whose rights a pod runs, and on what system.

use serde_json::Value;

use super::{
    super::{
        findings::{Findings, list, text},
        repeats::Repeats,
    },
    Pod,
};
use crate::{internals, schema::Problem, trail::Trail};

const ID: &str = "must be between 0 and 2147483647, inclusive";
const SYSCTL: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn check_pod(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let context = &spec["securityContext"];
    if spec["shareProcessNamespace"].is_null() && context.as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(&context[key], &path.at(key), findings);
    }
    for (index, group) in list(&context["supplementalGroups"]).iter().enumerate() {
        check_id(group, &path.at("supplementalGroups").item(index), findings);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        findings.invalid(path.at("shareProcessNamespace"), true, why);
    }
    let settings = list(&context["sysctls"]);
    let repeats = Repeats::of_field(settings, "name");
    for (index, setting) in settings.iter().enumerate() {
        let (name, field) = (text(&setting["name"]), path.at("sysctls"));
        let field = field.item(index);
        if !findings.given(field.at("name"), &setting["name"]) {
            continue;
        }
        if !is_sysctl(name) {
            findings.invalid(field.at("name"), name, SYSCTL);
        } else if repeats.has(index) {
            findings.duplicate(field.at("name"), name);
        }
    }
    findings.one_of_if_given(
        path.at("fsGroupChangePolicy"),
        &context["fsGroupChangePolicy"],
        &["Always", "OnRootMismatch"],
    );
    check_seccomp(&context["seccompProfile"], &path.at("seccompProfile"), findings);
    check_app_armor(&context["appArmorProfile"], &path.at("appArmorProfile"), findings);
    findings.one_of_if_given(
        path.at("supplementalGroupsPolicy"),
        &context["supplementalGroupsPolicy"],
        &["Merge", "Strict"],
    );
    findings.one_of_if_given(
        path.at("seLinuxChangePolicy"),
        &context["seLinuxChangePolicy"],
        &["MountOption", "Recursive"],
    );
}

fn check_id(id: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if let Some(id) = id.as_i64().filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        findings.invalid(path, id, ID);
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.iter().all(|c| plain(*c) || matches!(c, b'-' | b'_'))
            && bytes.first().is_some_and(|c| plain(*c))
            && bytes.last().is_some_and(|c| plain(*c))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_part)
}

fn check_seccomp(profile: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if profile.is_null() {
        return;
    }
    let local = &profile["localhostProfile"];
    match text(&profile["type"]) {
        "" => findings.required(path.at("type"), "type is required when seccompProfile is set"),
        _ => findings.one_of(
            path.at("type"),
            &profile["type"],
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
    let field = path.at("localhostProfile");
    if profile["type"] == "Localhost" {
        match local.as_str() {
            None => findings.required(field, "must be set when seccomp type is Localhost"),
            Some(local) => findings.inner_path(field, local),
        }
    } else if !local.is_null() {
        let shown = internals::shown("SeccompProfile", profile);
        let why = "can only be set when seccomp type is Localhost".to_owned();
        findings.add(field, Problem::InvalidText(shown, why));
    }
}

fn check_app_armor(profile: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if profile.is_null() {
        return;
    }
    let (local, field) = (&profile["localhostProfile"], path.at("localhostProfile"));
    match text(&profile["type"]) {
        "Localhost" => match text(local) {
            "" => findings.required(field, "must be set when AppArmor type is Localhost"),
            local if local.trim() != local => {
                findings.invalid(field, local, "must not be padded with whitespace");
            }
            _ => {}
        },
        "RuntimeDefault" | "Unconfined" if !local.is_null() => {
            let why = "can only be set when AppArmor type is Localhost";
            findings.invalid(field, local.clone(), why);
        }
        "" => findings.required(path.at("type"), "type is required when appArmorProfile is set"),
        _ => findings.one_of(
            path.at("type"),
            &profile["type"],
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
}

pub(super) fn check_container(pod: &Pod<'_>, container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let context = &container["securityContext"];
    if context.is_null() {
        return;
    }
    for key in ["runAsUser", "runAsGroup"] {
        check_id(&context[key], &path.at(key), findings);
    }
    let mount = &context["procMount"];
    findings.one_of_if_given(path.at("procMount"), mount, &["Default", "Unmasked"]);
    if pod.shares_users() && *mount == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        findings.invalid(path.at("procMount"), "Unmasked", why);
    }
    check_seccomp(&context["seccompProfile"], &path.at("seccompProfile"), findings);
    if context["allowPrivilegeEscalation"] == false {
        let refused =
            |why: &str| Problem::InvalidText(internals::shown("SecurityContext", context), why.to_owned());
        if context["privileged"] == true {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            findings.add(path, refused(why));
        }
        for _ in list(&context["capabilities"]["add"])
            .iter()
            .filter(|added| **added == "CAP_SYS_ADMIN")
        {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            findings.add(path, refused(why));
        }
    }
    check_app_armor(&context["appArmorProfile"], &path.at("appArmorProfile"), findings);
}

/// A pod with users of its own shares nothing else with its node.
pub(super) fn check_users(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    if pod.shares_users() {
        return;
    }
    for (key, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if pod.spec[key] == true {
            findings.forbidden(path.at(name), "when `hostUsers` is false");
        }
    }
    each_container(pod.spec, path, |container, path| {
        if !list(&container["volumeDevices"]).is_empty() {
            findings.forbidden(path.at("volumeDevices"), "when `hostUsers` is false");
        }
    });
}

/// What a pod's system does not know.
pub(super) fn check_system(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let (spec, system) = (pod.spec, &pod.spec["os"]);
    if system.is_null() {
        return;
    }
    match text(&system["name"]) {
        "" => findings.required(path.at("os.name"), ""),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            if !spec["securityContext"]["windowsOptions"].is_null() {
                findings.forbidden(path.at("securityContext.windowsOptions"), why);
            }
            each_container(spec, path, |container, path| {
                if !container["securityContext"]["windowsOptions"].is_null() {
                    findings.forbidden(path.at("securityContext.windowsOptions"), why);
                }
            });
        }
        "windows" => check_windows(spec, path, findings),
        _ => findings.one_of(path.at("os"), &system["name"], &["linux", "windows"]),
    }
}

fn each_container(spec: &Value, path: &Trail<'_>, mut visit: impl FnMut(&Value, &Trail<'_>)) {
    for kind in ["initContainers", "containers"] {
        let path = path.at(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            visit(container, &path.item(index));
        }
    }
}

fn check_windows(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    const WHY: &str = "cannot be set for a windows pod";
    let context = &spec["securityContext"];
    for key in [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    ] {
        if !context[key].is_null() {
            findings.forbidden(path.at("securityContext").at(key), WHY);
        }
    }
    for key in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
        if spec[key] == true || (key == "hostUsers" && !spec[key].is_null()) {
            findings.forbidden(path.at(key), WHY);
        }
    }
    each_container(spec, path, |container, path| {
        let own = path.at("securityContext");
        for key in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if !container["securityContext"][key].is_null() {
                findings.forbidden(own.at(key), WHY);
            }
        }
    });
}
