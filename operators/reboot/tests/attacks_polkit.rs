//! What polkit allows the agent's user: the shipped rule in a real polkitd.
//!
//! polkit reads its rules and the host's users from fixed paths. So this runs in its own mount namespace, in which
//! the test's files are mounted over them; the machine itself is not changed. Where that is not possible (no root, no
//! polkitd), the case is ignored with that reason.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use libtest_mimic::{Completion, Trial};

const RULE: &str = include_str!("../host/windlass-reboot.rules");

/// Whether polkit allows an action: for the agent's user, and for a user without any rule.
const EXPECTED: [(&str, bool, bool); 7] = [
    ("org.freedesktop.login1.reboot", true, false),
    ("org.freedesktop.login1.reboot-multiple-sessions", true, false),
    ("org.freedesktop.login1.reboot-ignore-inhibit", false, false),
    ("org.freedesktop.login1.power-off", false, false),
    ("org.freedesktop.login1.halt", false, false),
    ("org.freedesktop.systemd1.manage-units", false, false),
    // Allowed for everyone except the agent.
    ("org.freedesktop.login1.set-self-linger", false, true),
];

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=FOLDER/socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="method_return"/>
    <allow send_type="error"/>
    <allow send_type="signal"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
</busconfig>
"#;

/// Prints `ACTION yes` or `ACTION no` for each action, for each user in turn.
const SCRIPT: &str = r#"
mount --bind "$FOLDER/rules.d" /etc/polkit-1/rules.d
mount --bind "$FOLDER/passwd" /etc/passwd
export DBUS_SYSTEM_BUS_ADDRESS="unix:path=$FOLDER/socket"
trap 'kill $all 2>/dev/null' EXIT
all=
dbus-daemon --config-file="$FOLDER/bus.conf" --nofork --nopidfile >"$FOLDER/bus.log" 2>&1 & all="$all $!"
try=0; until [ -S "$FOLDER/socket" ]; do try=$((try + 1)); [ $try -lt 200 ]; sleep 0.1; done
chmod 0666 "$FOLDER/socket"
"$POLKITD" --no-debug >"$FOLDER/polkitd.log" 2>&1 & all="$all $!"
try=0; until pkaction >/dev/null 2>&1; do try=$((try + 1)); [ $try -lt 200 ]; sleep 0.1; done
for user in 65525 65526; do
    setpriv --reuid=$user --regid=$user --clear-groups sleep 120 & subject=$!; all="$all $subject"
    # setpriv is root until it has become the other.
    try=0; until [ "$(stat -c %u /proc/$subject)" = $user ]; do try=$((try + 1)); [ $try -lt 200 ]; sleep 0.1; done
    for action in $ACTIONS; do
        if pkcheck --action-id "$action" --process $subject >/dev/null 2>&1; then echo "$action yes"; else echo "$action no"; fi
    done
done
"#;

pub(crate) fn trial() -> Trial {
    let found = polkitd();
    Trial::ignorable_test("polkit_allows_only_reboot_for_one_user", move || match found {
        Err(reason) => Ok(Completion::ignored_with(reason)),
        Ok(polkitd) => polkit_allows_only_reboot_for_one_user(polkitd)
            .map(|()| Completion::Completed)
            .map_err(|error| format!("{error:?}").into()),
    })
}

/// Returns the path of polkitd, or what is missing.
fn polkitd() -> Result<&'static str, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root to mount over polkit's files".to_owned());
    }
    let places = [
        "/usr/lib/polkit-1/polkitd",
        "/usr/libexec/polkitd",
        "/usr/libexec/polkit-1/polkitd",
    ];
    let polkitd = places.into_iter().find(|place| Path::new(place).exists());
    let polkitd = polkitd.ok_or("no polkitd (Debian: apt-get install polkitd)")?;
    for file in ["org.freedesktop.login1.policy", "org.freedesktop.systemd1.policy"] {
        if !Path::new("/usr/share/polkit-1/actions").join(file).exists() {
            return Err(format!("no {file}: systemd is not installed"));
        }
    }
    for program in ["dbus-daemon", "pkcheck", "setpriv"] {
        if !runs(Command::new(program).arg("--version")) {
            return Err(format!("no {program} on the PATH"));
        }
    }
    if !runs(Command::new("unshare").args(["--mount", "mount", "--bind", "/etc", "/etc"])) {
        return Err("cannot create a mount namespace".to_owned());
    }
    Ok(polkitd)
}

fn runs(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn polkit_allows_only_reboot_for_one_user(polkitd: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    std::fs::create_dir(path.join("rules.d"))?;
    std::fs::write(path.join("rules.d/10-windlass-reboot.rules"), RULE)?;
    let users = std::fs::read_to_string("/etc/passwd")?;
    let lines = "windlass-reboot:x:65525:65525::/:/bin/false\nbystander:x:65526:65526::/:/bin/false\n";
    std::fs::write(path.join("passwd"), format!("{}\n{lines}", users.trim_end()))?;
    std::fs::write(
        path.join("bus.conf"),
        BUS.replace("FOLDER", &path.display().to_string()),
    )?;
    // polkitd does not run as root.
    for part in ["", "rules.d"] {
        std::fs::set_permissions(path.join(part), std::fs::Permissions::from_mode(0o755))?;
    }
    let actions = EXPECTED.map(|(action, ..)| action);
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", SCRIPT])
        .env("FOLDER", path)
        .env("POLKITD", polkitd)
        .env("ACTIONS", actions.join(" "))
        .output()?;
    let stdout = String::from_utf8(output.stdout)?;
    let log = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    ensure!(
        output.status.success(),
        "{stdout}\n{}\n{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        log("bus.log"),
        log("polkitd.log")
    );
    let word = |yes: bool| if yes { "yes" } else { "no" };
    let agent = EXPECTED.map(|(action, agent, _)| format!("{action} {}", word(agent)));
    let bystander = EXPECTED.map(|(action, _, other)| format!("{action} {}", word(other)));
    let lines: Vec<_> = stdout.lines().collect();
    let (first, second) = lines.split_at_checked(agent.len()).context("two users")?;
    assert_eq!(first, agent, "the agent");
    assert_eq!(second, bystander, "another user");
    Ok(())
}
