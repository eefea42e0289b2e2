//! Security contexts, user namespaces and the operating system.

use serde_json::Value;

use super::{
    super::super::{
        duplicates::Duplicates,
        error_list::{ErrorList, list, text},
    },
    Pod,
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

const ID_MESSAGE: &str = "must be between 0 and 2147483647, inclusive";
const SYSCTL_MESSAGE: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn check_pod(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let context = &spec["securityContext"];
    if spec["shareProcessNamespace"].is_null() && context.as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(&context[key], &path.child(key), errors);
    }
    for (index, group) in list(&context["supplementalGroups"]).iter().enumerate() {
        check_id(group, &path.child("supplementalGroups").index(index), errors);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(path.child("shareProcessNamespace"), true, why);
    }
    let settings = list(&context["sysctls"]);
    let repeats = Duplicates::by_field(settings, "name");
    for (index, setting) in settings.iter().enumerate() {
        let (name, field) = (text(&setting["name"]), path.child("sysctls"));
        let field = field.index(index);
        if !errors.require(field.child("name"), &setting["name"]) {
            continue;
        }
        if !is_sysctl(name) {
            errors.invalid(field.child("name"), name, SYSCTL_MESSAGE);
        } else if repeats.contains(index) {
            errors.duplicate(field.child("name"), name);
        }
    }
    errors.one_of_if_given(
        path.child("fsGroupChangePolicy"),
        &context["fsGroupChangePolicy"],
        &["Always", "OnRootMismatch"],
    );
    check_seccomp(&context["seccompProfile"], &path.child("seccompProfile"), errors);
    check_app_armor(
        &context["appArmorProfile"],
        &path.child("appArmorProfile"),
        errors,
    );
    errors.one_of_if_given(
        path.child("supplementalGroupsPolicy"),
        &context["supplementalGroupsPolicy"],
        &["Merge", "Strict"],
    );
    errors.one_of_if_given(
        path.child("seLinuxChangePolicy"),
        &context["seLinuxChangePolicy"],
        &["MountOption", "Recursive"],
    );
}

fn check_id(id: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if let Some(id) = id.as_i64().filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(path, id, ID_MESSAGE);
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

fn check_seccomp(profile: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if profile.is_null() {
        return;
    }
    let local = &profile["localhostProfile"];
    match text(&profile["type"]) {
        "" => errors.required(path.child("type"), "type is required when seccompProfile is set"),
        _ => errors.one_of(
            path.child("type"),
            &profile["type"],
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
    let field = path.child("localhostProfile");
    if profile["type"] == "Localhost" {
        match local.as_str() {
            None => errors.required(field, "must be set when seccomp type is Localhost"),
            Some(local) => errors.relative_path(field, local),
        }
    } else if !local.is_null() {
        let shown = internal_types::format_as_struct("SeccompProfile", profile);
        let why = "can only be set when seccomp type is Localhost".to_owned();
        errors.add(field, Problem::InvalidText(shown, why));
    }
}

fn check_app_armor(profile: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if profile.is_null() {
        return;
    }
    let (local, field) = (&profile["localhostProfile"], path.child("localhostProfile"));
    match text(&profile["type"]) {
        "Localhost" => match text(local) {
            "" => errors.required(field, "must be set when AppArmor type is Localhost"),
            local if local.trim() != local => {
                errors.invalid(field, local, "must not be padded with whitespace");
            }
            _ => {}
        },
        "RuntimeDefault" | "Unconfined" if !local.is_null() => {
            let why = "can only be set when AppArmor type is Localhost";
            errors.invalid(field, local.clone(), why);
        }
        "" => errors.required(path.child("type"), "type is required when appArmorProfile is set"),
        _ => errors.one_of(
            path.child("type"),
            &profile["type"],
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
}

pub(super) fn check_container(
    pod: &Pod<'_>,
    container: &Value,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let context = &container["securityContext"];
    if context.is_null() {
        return;
    }
    for key in ["runAsUser", "runAsGroup"] {
        check_id(&context[key], &path.child(key), errors);
    }
    let mount = &context["procMount"];
    errors.one_of_if_given(path.child("procMount"), mount, &["Default", "Unmasked"]);
    if pod.uses_host_users() && *mount == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(path.child("procMount"), "Unmasked", why);
    }
    check_seccomp(&context["seccompProfile"], &path.child("seccompProfile"), errors);
    if context["allowPrivilegeEscalation"] == false {
        let refused = |why: &str| {
            Problem::InvalidText(
                internal_types::format_as_struct("SecurityContext", context),
                why.to_owned(),
            )
        };
        if context["privileged"] == true {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.add(path, refused(why));
        }
        for _ in list(&context["capabilities"]["add"])
            .iter()
            .filter(|added| **added == "CAP_SYS_ADMIN")
        {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.add(path, refused(why));
        }
    }
    check_app_armor(
        &context["appArmorProfile"],
        &path.child("appArmorProfile"),
        errors,
    );
}

/// A pod with its own user namespace may not use other host namespaces.
pub(super) fn check_host_users(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if pod.uses_host_users() {
        return;
    }
    for (key, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if pod.spec[key] == true {
            errors.forbidden(path.child(name), "when `hostUsers` is false");
        }
    }
    each_container(pod.spec, path, |container, path| {
        if !list(&container["volumeDevices"]).is_empty() {
            errors.forbidden(path.child("volumeDevices"), "when `hostUsers` is false");
        }
    });
}

/// Rejects what the pod's operating system does not support.
pub(super) fn check_os(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (spec, system) = (pod.spec, &pod.spec["os"]);
    if system.is_null() {
        return;
    }
    match text(&system["name"]) {
        "" => errors.required(path.child("os.name"), ""),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            if !spec["securityContext"]["windowsOptions"].is_null() {
                errors.forbidden(path.child("securityContext.windowsOptions"), why);
            }
            each_container(spec, path, |container, path| {
                if !container["securityContext"]["windowsOptions"].is_null() {
                    errors.forbidden(path.child("securityContext.windowsOptions"), why);
                }
            });
        }
        "windows" => check_windows(spec, path, errors),
        _ => errors.one_of(path.child("os"), &system["name"], &["linux", "windows"]),
    }
}

fn each_container(spec: &Value, path: &FieldPath<'_>, mut visit: impl FnMut(&Value, &FieldPath<'_>)) {
    for kind in ["initContainers", "containers"] {
        let path = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            visit(container, &path.index(index));
        }
    }
}

fn check_windows(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
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
            errors.forbidden(path.child("securityContext").child(key), WHY);
        }
    }
    for key in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
        if spec[key] == true || (key == "hostUsers" && !spec[key].is_null()) {
            errors.forbidden(path.child(key), WHY);
        }
    }
    each_container(spec, path, |container, path| {
        let own = path.child("securityContext");
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
                errors.forbidden(own.child(key), WHY);
            }
        }
    });
}
