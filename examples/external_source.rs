//! Keys from outside of the API: a stream triggers reconciles.
//!
//! The ConfigMap `motd` follows a file. The stream yields its key when the file changes; the watch of the ConfigMap triggers
//! the same reconcile, so a change by hand is corrected too. A message queue or a timer works the same way.
//!
//! ```sh
//! cargo run -p windlass-examples --bin external_source -- --embedded         # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin external_source -- --file=/etc/motd   # runs on the kubeconfig's cluster
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use futures::{Stream, stream};
use windlass::{k8s_openapi::api::core::v1::ConfigMap, prelude::*};
use windlass_examples::{Flags, User};

/// How often the file is read.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Parser)]
struct Program {
    /// The file to follow
    #[arg(long, default_value = "motd.txt")]
    file: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

/// Yields the key of the ConfigMap when the file is first read, and when it changes.
fn changes(file: PathBuf) -> impl Stream<Item = ObjectKey> {
    stream::unfold((file, None), async |(file, before)| {
        loop {
            let content = fs::read(&file).ok();
            if content.is_some() && content != before {
                return Some((ObjectKey::namespaced("default", "motd"), (file, content)));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    })
}

/// Copies a file into a ConfigMap. It reads the current content, whatever triggered it.
struct Copier {
    file: PathBuf,
}

impl Reconciler for Copier {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let text = fs::read_to_string(&self.file)?; // an error is retried with backoff
        let existing = ctx.lister::<ConfigMap>()?.get(&request.key);
        if existing.as_deref().and_then(message) != Some(text.as_str()) {
            let copy: ConfigMap = from_value(json!({
                "metadata": { "namespace": request.key.namespace(), "name": request.key.name() },
                "data": { "message": text },
            }))?;
            ctx.writer().apply(&copy).await?;
        }
        Ok(Action::done())
    }
}

fn message(config: &ConfigMap) -> Option<&str> {
    config.data.as_ref()?.get("message").map(String::as_str)
}

fn main() -> std::process::ExitCode {
    let Program { mut file, flags } = Program::parse();
    if flags.embedded {
        file = std::env::temp_dir().join(format!("motd-{}.txt", std::process::id()));
    }
    let only = Watch::<ConfigMap>::new()
        .namespaces(["default"])
        .fields("metadata.name=motd");
    let copier = Controller::from_watch("motd", only)
        .triggered_by(changes(file.clone()))
        .reconcile(Copier { file: file.clone() });
    let setup = async |manager: Manager, _| Ok(manager.controller(copier));
    flags.run("external_source", [], setup, async |user| demo(user, &file).await)
}

async fn demo(user: User, file: &Path) -> Result<(), Error> {
    let wait_for_copy = async |text: &str| {
        let is_copied = |copy: &ConfigMap| message(copy) == Some(text);
        let copy = user.wait_for("motd", is_copied).await?;
        println!("the ConfigMap has {:?}", message(&copy).unwrap_or_default());
        Ok::<_, Error>(())
    };
    fs::write(file, "hello")?;
    wait_for_copy("hello").await?;
    // The change of the file triggers the next copy, not the own write of the first one.
    tokio::time::sleep(INTERVAL).await;
    fs::write(file, "goodbye")?;
    wait_for_copy("goodbye").await?;
    let by_hand = json!({ "data": { "message": "mine" } });
    user.patch::<ConfigMap>("motd", by_hand).await?;
    println!("it was changed by hand");
    wait_for_copy("goodbye").await?;
    fs::remove_file(file)?;
    Ok(())
}
