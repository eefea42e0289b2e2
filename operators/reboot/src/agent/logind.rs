//! Reboots through logind over D-Bus: services stop in order, and kubelet's graceful node shutdown takes place.

use std::time::Duration;

use zbus::{Connection, connection::Builder};

const SERVICE: &str = "org.freedesktop.login1";
const OBJECT: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// Timeout of the connection and of the call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Asks logind to reboot the machine. `bus` is the address of the system bus; by default D-Bus finds it.
pub(super) async fn reboot(bus: Option<&str>) -> Result<(), String> {
    let connection = tokio::time::timeout(CALL_TIMEOUT, connect(bus)).await;
    let connection = connection
        .unwrap_or_else(|_| Err(zbus::Error::Failure(format!("no answer within {CALL_TIMEOUT:?}"))))
        .map_err(|error| {
            format!(
                "cannot connect to the system D-Bus: {error}; mount the host's folder /run/dbus (not the socket in it, which is \
                 replaced when the bus restarts), check that the user \
                 of this process exists on the host (operators/reboot/host/install creates it), or choose another method with \
                 --reboot-with or --reboot-command"
            )
        })?;
    // There is no user who could enter a password.
    let interactive = false;
    let asked = connection.call_method(Some(SERVICE), OBJECT, Some(INTERFACE), "Reboot", &interactive);
    match tokio::time::timeout(CALL_TIMEOUT, asked).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!(
            "logind refused to reboot: {error}; a polkit rule must allow this user org.freedesktop.login1.reboot: \
             install operators/reboot/host on this node"
        )),
        Err(_) => Err(format!("no answer from logind within {CALL_TIMEOUT:?}")),
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

    /// Plays the bus and logind: answers the greeting, and the first call with `answer`.
    async fn fake_bus(listener: UnixListener, answer: Result<(), &'static str>) -> (String, bool) {
        let (stream, _) = listener.accept().await.expect("a connection");
        let stream = stream.into_std().expect("a socket");
        let bus = Builder::unix_stream(stream)
            .server(Guid::generate())
            .p2p()
            .build()
            .await
            .expect("a handshake");
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

    async fn reboot_with_answer(answer: Result<(), &'static str>) -> (Result<(), String>, String, bool) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("bus");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let played = tokio::spawn(fake_bus(listener, answer));
        let outcome = reboot(Some(&format!("unix:path={}", socket.display()))).await;
        let (call, interactive) = played.await.expect("the fake bus finished");
        (outcome, call, interactive)
    }

    #[tokio::test]
    async fn logind_is_called_once_without_interactive_authorization() {
        let (outcome, call, interactive) = reboot_with_answer(Ok(())).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            call,
            "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager.Reboot"
        );
        assert!(!interactive);
    }

    /// A restarted bus has another socket at the same path.
    #[tokio::test]
    async fn restarted_bus_is_found_again() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        for attempt in 1..=2 {
            let listener = UnixListener::bind(&socket).expect("a socket");
            let played = tokio::spawn(fake_bus(listener, Ok(())));
            assert_eq!(reboot(Some(&address)).await, Ok(()), "attempt {attempt}");
            played.await.expect("the fake bus finished");
            std::fs::remove_file(&socket).expect("the socket is removed");
            let missing = reboot(Some(&address)).await.expect_err("there is no bus");
            assert!(missing.contains("cannot connect"), "{missing}");
        }
    }

    #[tokio::test]
    async fn logind_refusal_names_the_polkit_rule() {
        let (outcome, ..) = reboot_with_answer(Err("org.freedesktop.DBus.Error.AccessDenied")).await;
        let error = outcome.expect_err("refused");
        assert!(
            error.contains("not for you") && error.contains("polkit"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn missing_bus_error_names_the_folder_to_mount() {
        let error = reboot(Some("unix:path=/nonexistent/bus"))
            .await
            .expect_err("no bus");
        assert!(
            error.contains("folder /run/dbus ") && error.contains("--reboot-with"),
            "{error}"
        );
    }
}
