//! A reboot by logind, over D-Bus: the machine's services end in their order, and kubelet's graceful shutdown takes place.

use std::time::Duration;

use zbus::{Connection, connection::Builder};

const SERVICE: &str = "org.freedesktop.login1";
const OBJECT: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// How long the bus may take to answer, and logind to say yes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks logind to reboot the machine. `bus`: where the system's bus is; else as D-Bus itself finds it.
pub(super) async fn reboot(bus: Option<&str>) -> Result<(), String> {
    let connection = tokio::time::timeout(PATIENCE, connect(bus)).await;
    let connection = connection
        .unwrap_or_else(|_| Err(zbus::Error::Failure(format!("no answer in {PATIENCE:?}"))))
        .map_err(|error| {
            format!(
                "the system's D-Bus cannot be reached: {error}; mount the host's /run/dbus/system_bus_socket, see that the user \
                 of this process exists on the host (operators/reboot/host/install makes it), or choose another way with \
                 --reboot-with or --reboot-command"
            )
        })?;
    // Nobody is there to be asked for a password.
    let interactive = false;
    let asked = connection.call_method(Some(SERVICE), OBJECT, Some(INTERFACE), "Reboot", &interactive);
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!(
            "logind does not reboot: {error}; it does so for users whom a polkit rule allows org.freedesktop.login1.reboot: \
             install operators/reboot/host on this node"
        )),
        Err(_) => Err(format!("logind does not answer in {PATIENCE:?}")),
    }
}

async fn connect(bus: Option<&str>) -> zbus::Result<Connection> {
    let builder = match bus {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    };
    builder.build().await
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::net::UnixListener;
    use zbus::{Guid, MessageStream, message::Type};

    use super::*;

    /// Plays the bus and logind behind it: answers the greeting, and the first call as it is told to.
    async fn play(listener: UnixListener, answer: Result<(), &'static str>) -> (String, bool) {
        let (stream, _) = listener.accept().await.expect("somebody comes");
        let stream = stream.into_std().expect("a socket");
        let bus = Builder::unix_stream(stream)
            .server(Guid::generate())
            .p2p()
            .build()
            .await
            .expect("it is greeted");
        let mut messages = MessageStream::from(&bus);
        loop {
            let message = messages.next().await.expect("a message").expect("a good one");
            if message.message_type() != Type::MethodCall {
                continue;
            }
            let header = message.header();
            let part = |part: Option<String>| part.unwrap_or_default();
            let member = part(header.member().map(ToString::to_string));
            if member == "Hello" {
                bus.reply(&header, &":1.7").await.expect("sent");
                continue;
            }
            let asked = format!(
                "{} {} {}.{member}",
                part(header.destination().map(ToString::to_string)),
                part(header.path().map(ToString::to_string)),
                part(header.interface().map(ToString::to_string)),
            );
            let interactive = message.body().deserialize().expect("a bool");
            match answer {
                Ok(()) => bus.reply(&header, &()).await.expect("sent"),
                Err(name) => bus
                    .reply_error(&header, name, &"not for you")
                    .await
                    .expect("sent"),
            }
            return (asked, interactive);
        }
    }

    async fn asked(answer: Result<(), &'static str>) -> (Result<(), String>, String, bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("bus");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let played = tokio::spawn(play(listener, answer));
        let told = reboot(Some(&format!("unix:path={}", socket.display()))).await;
        let (call, interactive) = played.await.expect("it was played");
        (told, call, interactive)
    }

    #[tokio::test]
    async fn logind_is_asked_once_and_asks_nobody_back() {
        let (told, call, interactive) = asked(Ok(())).await;
        assert_eq!(told, Ok(()));
        assert_eq!(
            call,
            "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager.Reboot"
        );
        assert!(!interactive);
    }

    #[tokio::test]
    async fn what_logind_refuses_is_told_with_who_may() {
        let (told, ..) = asked(Err("org.freedesktop.DBus.Error.AccessDenied")).await;
        let error = told.expect_err("refused");
        assert!(
            error.contains("not for you") && error.contains("polkit"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_machine_without_a_bus_is_told_what_to_mount() {
        let error = reboot(Some("unix:path=/nonexistent/bus"))
            .await
            .expect_err("no bus");
        assert!(
            error.contains("/run/dbus/system_bus_socket") && error.contains("--reboot-with"),
            "{error}"
        );
    }
}
