//! Log lines of a reconcile. In a process of its own, because it sets the global subscriber.

mod harness;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use harness::{controller, run, server, settle};
use model::{CONFIG_MAPS, config_map};
use parking_lot::Mutex;
use windlass_runtime::{Action, Context, Error, Request};

#[tokio::test(start_paused = true)]
async fn log_lines_of_a_reconcile_have_its_id() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let ids = Arc::new(Mutex::new(Vec::new()));
    let ids_by_it = Arc::clone(&ids);
    let reconciler = move |_: Request, ctx: Context| {
        ids_by_it.lock().push(ctx.id().to_string());
        async move {
            tracing::info!("inside");
            Err::<Action, _>(Error::terminal("outcome"))
        }
    };
    let (running, _) = run(&server, controller().reconcile(reconciler));
    settle().await;
    running.stop().await.expect("stops cleanly");
    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    let id = ids.lock()[0].clone();
    for word in ["inside", "outcome"] {
        let line = text
            .lines()
            .find(|line| line.contains(word))
            .unwrap_or_else(|| panic!("{word} is not in {text}"));
        assert!(
            line.contains(&format!("id={id}")) && line.contains("object=n/a"),
            "{line}"
        );
    }
}
