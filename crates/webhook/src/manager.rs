//! Runs the webhooks beside the controllers of a manager.

use std::{
    env,
    sync::{Arc, OnceLock},
};

use tokio::{net::TcpListener, sync::Notify};
use windlass_clock::Clock;
#[cfg(doc)]
use windlass_runtime::CrdInstaller;
use windlass_runtime::{Error, Manager, TaskContext};

use crate::{
    Webhooks,
    admission::Stage,
    certificates::{
        BundleTarget, CertificateFiles, CertificateSlot, Certificates, Readiness, SecretStore, TargetKind,
    },
    install::Installer,
    options::{WebhookOptions, WebhookOptionsError},
    registration::WebhookAddress,
    server::Server,
    service::WebhookService,
};

/// Adds [`Webhooks`] to a [`Manager`].
pub trait ManagerExt: Sized {
    /// Serves webhooks beside the controllers, on every replica, from before the caches sync (which may need a conversion)
    /// until the controllers have ended. `/readyz` has a check named `webhooks`: it fails until the certificate is trusted by
    /// all configurations. With [`--install`](CrdInstaller::apply), the webhooks are registered.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_runtime::Manager;
    /// use windlass_webhook::{ManagerExt, Verdict, WebhookOptions, Webhooks, validate};
    ///
    /// fn setup(manager: Manager) -> Manager {
    ///     let quota = validate::<ConfigMap, _>(|_, _| Verdict::deny("no more"));
    ///     manager.webhooks(Webhooks::new("quota").with(quota), WebhookOptions::default())
    /// }
    /// ```
    ///
    /// Behind a Service that conversions use, set `publishNotReadyAddresses: true`: a replica is not ready before its caches
    /// have synced, and these may wait for a conversion.
    #[must_use]
    fn webhooks(self, webhooks: Webhooks, options: WebhookOptions) -> Self;
}

impl ManagerExt for Manager {
    fn webhooks(self, webhooks: Webhooks, options: WebhookOptions) -> Self {
        webhooks.metrics.register(&self.metrics());
        let ready = Readiness::new();
        let (checked, serving) = (ready.clone(), Arc::new(OnceLock::<WebhookService>::new()));
        let started = serving.clone();
        self.check_ready("webhooks", move || {
            let readiness = checked.get().and_then(|()| {
                // Requests would wait for the caches, and fail.
                let has_synced = started.get().is_some_and(WebhookService::has_synced);
                let why = "the caches that the handlers read have not synced";
                has_synced.then_some(()).ok_or_else(|| why.to_owned())
            });
            async move { Ok(readiness?) }
        })
        .service("webhooks", move |ctx| {
            run(webhooks, options, (ready, serving), ctx)
        })
    }
}

/// Serves the webhooks until the manager stops.
async fn run(
    webhooks: Webhooks,
    options: WebhookOptions,
    (ready, serving): (Readiness, Arc<OnceLock<WebhookService>>),
    ctx: TaskContext,
) -> Result<(), Error> {
    // Set by the kubelet in every container.
    let is_in_pod = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let namespace = is_in_pod.then(|| ctx.client().default_namespace().to_owned());
    let address = options.listen_address(is_in_pod);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        format!(
            "cannot listen on {address} for webhooks: {error}; choose another address with `WebhookOptions::listen` or \
             `--webhook-listen`"
        )
    })?;
    let listening = listener.local_addr()?;
    check_names(&webhooks)?;
    let installs = ctx.installs();
    // Without a registration the API server calls nothing.
    let server = ctx.server_url().filter(|_| installs);
    let resolved = options.resolve(&webhooks.name, namespace.as_deref(), listening, server)?;
    let started = Clock::system().now().as_second();
    let configurations = webhooks.configurations(&resolved.address);
    let installer = installs.then(|| {
        Installer::new(
            ctx.client().clone(),
            &webhooks.name,
            &resolved.address,
            &configurations,
            started,
        )
    });
    let targets = targets(&webhooks);
    let program = webhooks.name.clone();
    let store = match &resolved.address {
        WebhookAddress::Service { namespace, .. } => SecretStore::Secret {
            namespace: namespace.clone(),
            name: resolved.secret,
        },
        WebhookAddress::Url(_) => SecretStore::Memory,
    };

    let (slot, check) = (Arc::new(CertificateSlot::default()), Arc::new(Notify::new()));
    let service = webhooks.service_within(ctx.caches(), ctx.scope());
    serving.set(service.clone()).ok();
    let server = Server::new(listener, slot.clone(), service, options.limits, check.clone())?;
    tracing::info!(address = %listening, "serving webhooks");

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // At the first signal, so that the end of the grace period does not come first.
    let stopping = ctx.manager_stopping();
    let keeping = async {
        match options.certificates {
            Some(folder) => {
                CertificateFiles::new(folder)
                    .run(&slot, &ready, installer.as_ref(), stopping)
                    .await;
            }
            None => {
                let certificates = Certificates {
                    client: ctx.client().clone(),
                    store,
                    address: resolved.address,
                    started,
                    program,
                    hosts: resolved.hosts,
                    targets,
                    slot: slot.clone(),
                    ready: ready.clone(),
                    check,
                    installer: installer.as_ref(),
                };
                certificates.run(stopping).await;
            }
        }
    };
    let working = async {
        keeping.await;
        if let Some(installer) = &installer {
            installer.take_back().await;
        }
        // The controllers may need a conversion until they have ended.
        ctx.stopping().await;
        ready.set(Err("the webhooks are stopping".to_owned()));
        drop(stop);
    };
    let serving = server.serve(async {
        stopped.await.ok();
    });
    futures::join!(working, serving);
    Ok(())
}

/// Checks the names of which objects are made. The API server would refuse them with the same words, again and again.
fn check_names(webhooks: &Webhooks) -> Result<(), WebhookOptionsError> {
    let name = &webhooks.name;
    if !windlass_api::naming::is_dns_label(name) {
        return Err(WebhookOptionsError::InvalidName(name.clone()));
    }
    for stage in [Stage::Validating, Stage::Mutating] {
        for declared in webhooks.of_stage(stage) {
            let full = declared.full_name(name);
            let is_valid = windlass_api::naming::is_dns_subdomain(&full) && full.split('.').count() >= 3;
            if !is_valid {
                return Err(WebhookOptionsError::InvalidWebhookName(full));
            }
        }
    }
    Ok(())
}

/// The objects whose `caBundle` is ours.
fn targets(webhooks: &Webhooks) -> Vec<BundleTarget> {
    let names = |stage| {
        let declared = webhooks.of_stage(stage);
        let names: Vec<_> = declared
            .map(|declared| declared.full_name(&webhooks.name))
            .collect();
        (!names.is_empty()).then_some(names)
    };
    let target = |kind| BundleTarget {
        kind,
        name: webhooks.name.clone(),
    };
    let validating = names(Stage::Validating).map(|names| target(TargetKind::Validating(names)));
    let mutating = names(Stage::Mutating).map(|names| target(TargetKind::Mutating(names)));
    let crds = webhooks.conversions.iter().map(|converter| BundleTarget {
        name: converter.crd_name(),
        kind: TargetKind::Crd,
    });
    validating.into_iter().chain(mutating).chain(crds).collect()
}
