//! The start of a manager: what is missing is reported, and holds no other controller.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use tokio::{sync::oneshot, time::timeout};
use windlass::{
    k8s_openapi::{
        api::{
            core::v1::{ConfigMap, Pod, Secret},
            rbac::v1::Role,
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api,
        api::{DeleteParams, PostParams},
        core::{ApiResource, DynamicObject, GroupVersionKind},
    },
    prelude::*,
    runtime::{Controllers, CrdInstaller, ElectionConfig, ManagerError, OnBlocked, serving::ControllerState},
    serde_json::{self, Value},
};
use windlass_cluster::User;
use windlass_suite::{
    Context as Case, RecordedRequest, RunningManager, STEP_TIMEOUT, TestEnvironment, install_crds,
};

use crate::runtime::{
    fixture::{self, Fixture, lock},
    garden::{Garden, desired, gardens},
    manager::definition,
    shop::{Plan, Shop, ShopSpec, config, shops},
};

fn role(case: &Case, rules: &Value) -> serde_json::Result<Role> {
    let metadata = json!({ "name": "program", "namespace": case.namespace() });
    from_value(json!({ "metadata": metadata, "rules": rules }))
}

/// A user with exactly these rights in the case's namespace.
async fn user(case: &Case, rules: Value) -> anyhow::Result<User> {
    let name = format!("program-{}", case.namespace());
    let user = case.cluster().user(&name, [""; 0]).await?;
    Ok(user.with_role(&role(case, &rules)?).await?)
}

/// Waits until something holds; the error has the state of the controllers.
async fn until(controllers: &Controllers, holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let waited = fixture::until(holds).await;
    waited.with_context(|| format!("{:?}", controllers.status()))
}

fn is_running(controllers: &Controllers, n: usize) -> bool {
    controllers.status()[n].state == ControllerState::Running
}

/// A controller of config maps that counts its reconciles.
fn counting(seen: &Arc<AtomicUsize>) -> Controller<ConfigMap, impl Reconciler> {
    let seen = Arc::clone(seen);
    Controller::<ConfigMap>::new("allowed").reconcile(move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        async { Ok(Action::done()) }
    })
}

/// What was logged by the manager's thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn with(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&lock(&self.0)).into_owned();
        let lines = text.lines().filter(|line| line.contains(word));
        lines.map(str::to_owned).collect()
    }
}

/// Runs a manager on a thread of its own, whose log is captured: other cases log at the same time.
fn run_logged(
    manager: Manager,
) -> (
    Lines,
    oneshot::Sender<()>,
    thread::JoinHandle<Result<(), ManagerError>>,
) {
    let (lines, (stop, stopped)) = (Lines::default(), oneshot::channel::<()>());
    let writer = lines.clone();
    let thread = thread::spawn(move || {
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = windlass::tracing::subscriber::set_default(subscriber);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(manager.run_until(async move { drop(stopped.await) }))
    });
    (lines, stop, thread)
}

/// A user that may list config maps only, and a program with a controller that needs more.
pub(crate) async fn missing_rights_are_reported_together_and_hold_no_other_controller(
    case: Case,
) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let few = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"] },
    ]);
    let user = user(&case, few.clone()).await?;
    let seen = Arc::<AtomicUsize>::default();
    let manager = || {
        let forbidden = Controller::<Garden>::new("forbidden")
            .owns::<Pod>()
            .reads::<Secret>()
            .declare(|_: Arc<Garden>, _: Context| async { Ok(Desired::new()) });
        Manager::new(user.client())
            .namespace(case.namespace())
            .controller(counting(&seen))
            .controller(forbidden)
            .elect(ElectionConfig::new("program").namespace(case.namespace()))
    };

    let failing = manager().on_blocked(OnBlocked::Fail);
    let error = timeout(STEP_TIMEOUT, failing.run_until(std::future::pending())).await?;
    let error = error.err().context("rights are missing")?.to_string();
    assert_eq!(
        error,
        format!(
            "cannot start: controller `forbidden`: it may not list gardens, pods, secrets; \
             add to the rules of its Role in namespace {}: \
             [{{apiGroups: [\"\"], resources: [pods], verbs: [create, delete, list, patch, watch]}}, \
             {{apiGroups: [\"\"], resources: [events], verbs: [create, patch]}}, \
             {{apiGroups: [\"\"], resources: [secrets], verbs: [list, watch]}}, \
             {{apiGroups: [\"suite.windlass.dev\"], resources: [gardens], verbs: [get, list, watch]}}, \
             {{apiGroups: [\"suite.windlass.dev\"], resources: [gardens/status], verbs: [patch]}}]",
            case.namespace()
        )
    );

    let manager = manager();
    let controllers = manager.controllers();
    let running = RunningManager::start(manager);
    env.create(from_value::<ConfigMap>(json!({ "metadata": { "name": "a" } }))?)
        .await?;
    // The election waits for the controllers that can start, and these reconcile.
    until(&controllers, || seen.load(Ordering::Relaxed) > 0)
        .await
        .context("the other controller does not run")?;
    let is_blocked = |state: &ControllerState| {
        matches!(state, ControllerState::Syncing { blocked_by: Some(missing), .. }
            if missing == "it may not list gardens, pods, secrets")
    };
    until(&controllers, || is_blocked(&controllers.status()[1].state))
        .await
        .context("it is not blocked")?;
    // It starts when it gets the rights.
    let mut all = few.as_array().cloned().unwrap_or_default();
    all.push(json!({ "apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list", "watch"] }));
    all.push(json!({
        "apiGroups": ["suite.windlass.dev"], "resources": ["gardens"], "verbs": ["list", "watch"],
    }));
    let _user = user.clone().with_role(&role(&case, &all.into())?).await?;
    until(&controllers, || is_running(&controllers, 1))
        .await
        .context("it did not start")?;
    running.stop().await
}

/// A user with the rights to read, but not to write: the controllers start, and one line has all that is missing.
pub(crate) async fn missing_write_rights_are_reported_at_the_start(case: Case) -> anyhow::Result<()> {
    let _env = Fixture::new(&case).await?;
    let read = json!(["list", "watch"]);
    let few = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": read },
        { "apiGroups": ["suite.windlass.dev"], "resources": ["gardens"], "verbs": read },
        // Limited to the Lease by its name, as roles often are.
        {
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["program"],
            "verbs": ["get", "update"],
        },
    ]);
    let user = user(&case, few).await?;
    let tidy = |_: Arc<Garden>, _: Context| async { Ok(()) };
    let manager = Manager::new(user.client())
        .namespace(case.namespace())
        .controller(
            gardens()
                .declare(desired)
                .cleanup("suite.windlass.dev/tidy", tidy),
        )
        .elect(ElectionConfig::new("program").namespace(case.namespace()));
    let controllers = manager.controllers();
    let (lines, stop, thread) = run_logged(manager);
    until(&controllers, || !lines.with("rights are missing").is_empty()).await?;
    let expected = format!(
        "add to the rules of its Role in namespace {}: \
         [{{apiGroups: [\"\"], resources: [configmaps], verbs: [create, delete, patch]}}, \
         {{apiGroups: [\"\"], resources: [events], verbs: [create, patch]}}, \
         {{apiGroups: [\"coordination.k8s.io\"], resources: [leases], verbs: [create]}}, \
         {{apiGroups: [\"suite.windlass.dev\"], resources: [gardens], verbs: [get, patch]}}, \
         {{apiGroups: [\"suite.windlass.dev\"], resources: [gardens/status], verbs: [patch]}}]",
        case.namespace()
    );
    let [line] = &lines.with("rights are missing")[..] else {
        anyhow::bail!("one line: {:?}", lines.with(""))
    };
    // As text, quotes in a field are escaped.
    assert!(line.replace('\\', "").contains(&expected), "{line}\n{expected}");
    assert_eq!(lines.with("waiting to start"), [""; 0], "it is not blocked");
    drop(stop);
    thread.join().expect("no panic")?;
    Ok(())
}

/// A user that may list, but not watch: the controller starts, follows the server late only, and the log names the right.
pub(crate) async fn missing_watch_right_is_reported_at_the_start(case: Case) -> anyhow::Result<()> {
    let _env = Fixture::new(&case).await?;
    let few = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]);
    let user = user(&case, few).await?;
    let manager = Manager::new(user.client())
        .namespace(case.namespace())
        .controller(counting(&Arc::default()));
    let controllers = manager.controllers();
    let (lines, stop, thread) = run_logged(manager);
    for (message, verbs) in [
        ("rights are missing", "[watch]"),
        ("cannot follow the server", "[list, watch]"),
    ] {
        until(&controllers, || !lines.with(message).is_empty()).await?;
        let expected = format!(
            "add to the rules of its Role in namespace {}: [{{apiGroups: [\"\"], resources: [configmaps], verbs: {verbs}}}]",
            case.namespace()
        );
        let line = lines.with(message).concat();
        // As text, quotes in a field are escaped.
        assert!(line.replace('\\', "").contains(&expected), "{line}\n{expected}");
    }
    assert!(is_running(&controllers, 0), "it has started");
    drop(stop);
    thread.join().expect("no panic")?;
    Ok(())
}

/// The create of a child is conditional, so a role without `get` of children is enough.
pub(crate) async fn deleted_child_is_created_again_without_the_right_to_get_it(
    case: Case,
) -> anyhow::Result<()> {
    install_crds(&case, [Shop::crd()]).await?;
    let env = TestEnvironment::new(&case);
    env.create(Shop::new("corner", ShopSpec { size: 1 })).await?;
    let children = json!(["list", "watch", "create", "patch", "delete"]);
    let few = json!([
        { "apiGroups": ["suite.windlass.dev"], "resources": ["shops"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["suite.windlass.dev"], "resources": ["shops/status"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": children },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
    ]);
    let user = user(&case, few).await?;
    let plan: Plan = Arc::new(Mutex::new(Arc::new(|_: &Shop| {
        Ok(Desired::new().child(config("one")))
    })));
    let manager = Manager::new(user.client())
        .namespace(case.namespace())
        .controller(shops(&plan));
    let running = RunningManager::start(manager);
    let first = env.wait_for::<ConfigMap>("one", |_| true).await?;
    env.delete::<ConfigMap>("one").await?;
    env.wait_for::<ConfigMap>("one", |again| again.uid() != first.uid())
        .await?;
    running.stop().await
}

/// Without `--install`. The user may not read CRDs either.
pub(crate) async fn missing_crd_holds_no_other_controller(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let group = format!("{}.windlass.dev", case.namespace());
    let read = json!(["list", "watch"]);
    let few = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": read },
        { "apiGroups": [group], "resources": ["sheds"], "verbs": read },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"] },
    ]);
    let user = user(&case, few).await?;
    let (seen, crd) = (Arc::<AtomicUsize>::default(), definition(&group, &["v1"]));
    let sheds = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Shed"));
    let sheds = Controller::from_watch("sheds", Watch::<DynamicObject>::dynamic(sheds));
    let manager = Manager::new(user.client())
        .namespace(case.namespace())
        .install(CrdInstaller::new([crd.clone()]))
        .controller(counting(&seen))
        .controller(sheds.reconcile(|_, _| async { Ok(Action::done()) }))
        .elect(ElectionConfig::new("program").namespace(case.namespace()));
    let controllers = manager.controllers();
    let running = RunningManager::start(manager);
    env.create(from_value::<ConfigMap>(json!({ "metadata": { "name": "a" } }))?)
        .await?;
    until(&controllers, || seen.load(Ordering::Relaxed) > 0)
        .await
        .context("the other controller does not run")?;
    let missing = format!(
        "the CRD sheds.{group} is not installed, or does not serve v1: start with --install, or apply its manifest with \
         kubectl"
    );
    let expected = ControllerState::Syncing {
        waiting_for: vec!["Shed".to_owned()],
        blocked_by: Some(missing),
    };
    until(&controllers, || controllers.status()[1].state == expected).await?;
    let definitions = Api::<CustomResourceDefinition>::all(case.client());
    definitions.create(&PostParams::default(), &crd).await?;
    until(&controllers, || is_running(&controllers, 1))
        .await
        .context("it did not start")?;
    running.stop().await?;
    definitions
        .delete(&format!("sheds.{group}"), &DeleteParams::default())
        .await?;
    Ok(())
}

/// As if an aggregated API or a conversion webhook were down: the server answers, but not for this kind.
pub(crate) async fn kind_that_answers_with_errors_holds_no_other_controller(
    case: Case,
) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let failure = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
        "message": "the webhook is down",
    });
    let is_secrets = |sent: &RecordedRequest| sent.resource() == "secrets";
    env.proxy().respond(usize::MAX, failure, is_secrets);
    let seen = Arc::<AtomicUsize>::default();
    let secrets = Controller::<Secret>::new("secrets").reconcile(|_, _| async { Ok(Action::done()) });
    let manager = env
        .manager()
        .controller(counting(&seen))
        .controller(secrets)
        .elect(ElectionConfig::new("program").namespace(case.namespace()));
    let controllers = manager.controllers();
    let running = RunningManager::start(manager);
    env.create(from_value::<ConfigMap>(json!({ "metadata": { "name": "a" } }))?)
        .await?;
    until(&controllers, || seen.load(Ordering::Relaxed) > 0)
        .await
        .context("the other controller does not run")?;
    let expected = ControllerState::Syncing {
        waiting_for: vec!["Secret".to_owned()],
        blocked_by: Some(format!(
            "cannot list secrets in {}: the webhook is down",
            case.namespace()
        )),
    };
    assert_eq!(controllers.status()[1].state, expected);
    running.stop().await
}
