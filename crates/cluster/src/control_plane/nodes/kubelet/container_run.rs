//! The state machine of one simulated container.
//!
//! ```text
//!   Waiting ─► Pulling ─► Starting ─► Running ─► Terminated ─► CrashBackOff ─► Pulling …
//!                 │          └─► ConfigError ─► Starting …
//!                 └─► PullFailed ─► PullBackOff ─► Pulling …
//! ```
//!
//! It does not access the API: it emits [`ContainerEvent`]s.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Container, jiff::Timestamp};
use tokio::time::Instant;

use super::script::{ContainerScript, Readiness};
use crate::control_plane::{
    nodes::identity::{digest, full_image_name},
    settings::Settings,
};

/// Approximate durations on a real machine.
const PULL_DURATION: Duration = Duration::from_secs(1);
const START_DURATION: Duration = Duration::from_millis(500);
const INIT_DURATION: Duration = Duration::from_millis(500);

/// Back-off of failing containers and pulls: doubles from the first to the longest.
const INITIAL_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_mins(5);

/// The time between two attempts to create a container whose configuration is incomplete.
const SYNC_INTERVAL: Duration = Duration::from_secs(10);

/// A container that ran this long restarts without back-off.
const BACK_OFF_RESET_AFTER: Duration = Duration::from_mins(10);

#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container that keeps running.
    Sidecar,
    Main,
}

pub(super) struct ContainerRun {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) role: Role,
    pub(super) script: ContainerScript,
    pub(super) state: ContainerState,
    pub(super) restarts: i32,
    pub(super) last_termination: Option<Termination>,
    pub(super) id: Option<String>,
    /// The sum of the initial delays of its startup and readiness probes.
    probe_delay: Duration,
    always_pulls: bool,
    failed_pulls: u32,
    starts: u32,
    /// The back-off of the next crash. `None`: restart immediately.
    back_off: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ContainerState {
    Waiting,
    Pulling {
        until: Instant,
    },
    /// The pull has just failed (`ErrImagePull`).
    PullFailed {
        until: Instant,
    },
    PullBackOff {
        until: Instant,
    },
    Starting {
        until: Instant,
    },
    /// An object that its environment needs is missing (`CreateContainerConfigError`).
    ConfigError {
        until: Instant,
        message: String,
    },
    Running {
        since: Now,
    },
    CrashBackOff {
        until: Instant,
        wait: Duration,
    },
    Terminated(Termination),
}

impl PartialEq for Now {
    fn eq(&self, other: &Self) -> bool {
        self.instant == other.instant
    }
}

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.time.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) started: Option<Timestamp>,
    pub(super) finished: Timestamp,
    pub(super) id: Option<String>,
}

/// When a container advances next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Not without an external change.
    Idle,
    At(Instant),
    /// Immediately, but after its current status was written.
    AfterStatusWrite,
    /// Immediately.
    Immediately,
}

/// An event of a container, for Kubernetes events and container logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerEvent {
    Normal(&'static str, String),
    Warning(&'static str, String),
    /// The container starts; the number of earlier starts.
    Started(u32),
    Stopped,
}

/// The pod and machine of a container.
pub(super) struct ContainerContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now: Now,
    /// `name_namespace(uid)`, as kubelets name pods in messages.
    pub(super) pod: &'a str,
    pub(super) uid: &'a str,
    /// Whether the machine has the image.
    pub(super) has_image: bool,
    /// Whether a container restarts after this exit code.
    pub(super) restarts: fn(policy: &str, role: Role, code: i32) -> bool,
    pub(super) policy: &'a str,
    /// Why the container cannot be created.
    pub(super) config_error: Option<&'a str>,
}

impl ContainerRun {
    pub(super) fn new(container: &Container, role: Role, script: ContainerScript) -> Self {
        let probes = [&container.startup_probe, &container.readiness_probe];
        let delays = probes
            .into_iter()
            .flatten()
            .map(|probe| probe.initial_delay_seconds.unwrap_or(0));
        let probing = delays.map(|seconds| u64::try_from(seconds).unwrap_or(0)).sum();
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            role,
            script,
            state: ContainerState::Waiting,
            restarts: 0,
            last_termination: None,
            id: None,
            probe_delay: Duration::from_secs(probing),
            always_pulls: container.image_pull_policy.as_deref() == Some("Always"),
            failed_pulls: 0,
            starts: 0,
            back_off: None,
        }
    }

    /// Advances by one state, if it is time.
    pub(super) fn advance(
        &mut self,
        ctx: &ContainerContext<'_>,
        events: &mut Vec<ContainerEvent>,
    ) -> NextStep {
        let (now, settings) = (ctx.now, ctx.settings);
        let wait_for = |until: Instant| (until > now.instant).then_some(NextStep::At(until));
        match self.state.clone() {
            ContainerState::Waiting => {
                self.pull(ctx, events);
                NextStep::Immediately
            }
            ContainerState::Pulling { until } => wait_for(until).unwrap_or_else(|| self.pulled(ctx, events)),
            ContainerState::PullFailed { until } => {
                self.state = ContainerState::PullBackOff { until };
                let text = format!("Back-off pulling image \"{}\"", self.image);
                events.push(ContainerEvent::Normal("BackOff", text));
                events.push(ContainerEvent::Warning(
                    "Failed",
                    "Error: ImagePullBackOff".to_owned(),
                ));
                NextStep::At(until)
            }
            ContainerState::PullBackOff { until } => wait_for(until).unwrap_or_else(|| {
                self.pull(ctx, events);
                NextStep::Immediately
            }),
            ContainerState::Starting { until } => wait_for(until).unwrap_or_else(|| {
                if let Some(message) = ctx.config_error {
                    events.push(ContainerEvent::Warning("Failed", format!("Error: {message}")));
                    self.state = ContainerState::ConfigError {
                        until: now.instant + settings.scale_wait(SYNC_INTERVAL),
                        message: message.to_owned(),
                    };
                    return NextStep::AfterStatusWrite;
                }
                self.start(ctx, events);
                NextStep::Immediately
            }),
            ContainerState::ConfigError { until, .. } => wait_for(until).unwrap_or_else(|| {
                self.state = ContainerState::Starting { until: now.instant };
                NextStep::Immediately
            }),
            ContainerState::Running { since } => match self.ends_at(since, settings) {
                Some((until, code)) => wait_for(until).unwrap_or_else(|| {
                    self.terminate(code, now, events);
                    NextStep::AfterStatusWrite
                }),
                None => self
                    .ready_at(since, settings)
                    .map_or(NextStep::Idle, |until| wait_for(until).unwrap_or(NextStep::Idle)),
            },
            ContainerState::CrashBackOff { until, .. } => wait_for(until).unwrap_or_else(|| {
                self.restart(ctx, events);
                NextStep::Immediately
            }),
            ContainerState::Terminated(ended) => {
                if !(ctx.restarts)(ctx.policy, self.role, ended.code) {
                    return NextStep::Idle;
                }
                self.restart_or_back_off(&ended, ctx, events)
            }
        }
    }

    fn pull(&mut self, ctx: &ContainerContext<'_>, events: &mut Vec<ContainerEvent>) {
        let fails = self.script.failing_pulls > self.failed_pulls;
        if ctx.has_image && !self.always_pulls && !fails {
            let text = format!(
                "Container image \"{}\" already present on machine and can be accessed by the pod",
                self.image
            );
            events.push(ContainerEvent::Normal("Pulled", text));
            self.state = ContainerState::Starting {
                until: ctx.now.instant + ctx.settings.scale_work(START_DURATION),
            };
            return;
        }
        events.push(ContainerEvent::Normal(
            "Pulling",
            format!("Pulling image \"{}\"", self.image),
        ));
        self.state = ContainerState::Pulling {
            until: ctx.now.instant + ctx.settings.scale_work(PULL_DURATION),
        };
    }

    fn pulled(&mut self, ctx: &ContainerContext<'_>, events: &mut Vec<ContainerEvent>) -> NextStep {
        let now = ctx.now.instant;
        if self.script.failing_pulls > self.failed_pulls {
            let wait = back_off(self.failed_pulls);
            self.failed_pulls += 1;
            let text = format!("Failed to pull image \"{}\": {}", self.image, self.pull_error());
            events.push(ContainerEvent::Warning("Failed", text));
            events.push(ContainerEvent::Warning(
                "Failed",
                "Error: ErrImagePull".to_owned(),
            ));
            self.state = ContainerState::PullFailed {
                until: now + ctx.settings.scale_wait(wait),
            };
            return NextStep::AfterStatusWrite;
        }
        let took = ctx.settings.scale_work(PULL_DURATION);
        let text = format!(
            "Successfully pulled image \"{}\" in {} ({} including waiting). Image size: {} bytes.",
            self.image,
            go_duration(took),
            go_duration(took),
            image_size(&self.image)
        );
        events.push(ContainerEvent::Normal("Pulled", text));
        self.state = ContainerState::Starting {
            until: now + ctx.settings.scale_work(START_DURATION),
        };
        NextStep::Immediately
    }

    /// Returns the error of a registry that does not have the image.
    pub(super) fn pull_error(&self) -> String {
        let image = full_image_name(&self.image);
        format!(
            "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \
             \"{image}\": {image}: not found"
        )
    }

    fn start(&mut self, ctx: &ContainerContext<'_>, events: &mut Vec<ContainerEvent>) {
        self.id = Some(digest(&format!("{} {} {}", ctx.uid, self.name, self.starts)));
        events.push(ContainerEvent::Normal("Created", "Container created".to_owned()));
        events.push(ContainerEvent::Normal("Started", "Container started".to_owned()));
        events.push(ContainerEvent::Started(self.starts));
        self.starts += 1;
        self.state = ContainerState::Running { since: ctx.now };
    }

    /// Returns when and with which code the container exits, if it does.
    fn ends_at(&self, since: Now, settings: &Settings) -> Option<(Instant, i32)> {
        match self.script.exit {
            Some(exit) if self.starts <= exit.times => {
                Some((since.instant + settings.scale_wait(exit.after), exit.code))
            }
            _ if self.role == Role::Init => Some((since.instant + settings.scale_work(INIT_DURATION), 0)),
            _ => None,
        }
    }

    fn ready_at(&self, since: Now, settings: &Settings) -> Option<Instant> {
        match self.script.readiness {
            Readiness::AfterProbes => Some(since.instant + settings.scale_work(self.probe_delay)),
            Readiness::After(wait) => Some(since.instant + settings.scale_wait(wait)),
            Readiness::Never => None,
        }
    }

    pub(super) fn is_ready(&self, now: Instant, settings: &Settings) -> bool {
        match &self.state {
            ContainerState::Running { since } => {
                self.role != Role::Init && self.ready_at(*since, settings).is_some_and(|at| at <= now)
            }
            ContainerState::Terminated(ended) => self.role == Role::Init && ended.code == 0,
            _ => false,
        }
    }

    pub(super) fn terminate(&mut self, code: i32, now: Now, events: &mut Vec<ContainerEvent>) {
        self.terminate_with_reason(code, if code == 0 { "Completed" } else { "Error" }, now, events);
    }

    pub(super) fn terminate_with_reason(
        &mut self,
        code: i32,
        reason: &'static str,
        now: Now,
        events: &mut Vec<ContainerEvent>,
    ) {
        let started = match &self.state {
            ContainerState::Running { since } => Some(since.time),
            _ => None,
        };
        events.push(ContainerEvent::Stopped);
        self.state = ContainerState::Terminated(Termination {
            code,
            reason,
            started,
            finished: now.time,
            id: self.id.clone(),
        });
    }

    /// Restarts a terminated container: immediately the first time, then after a growing back-off.
    fn restart_or_back_off(
        &mut self,
        ended: &Termination,
        ctx: &ContainerContext<'_>,
        events: &mut Vec<ContainerEvent>,
    ) -> NextStep {
        let ran = ended
            .started
            .map(|started| ended.finished.duration_since(started).unsigned_abs());
        if ran.is_some_and(|ran| ran >= BACK_OFF_RESET_AFTER) {
            self.back_off = None;
        }
        match self.back_off {
            None => {
                self.back_off = Some(INITIAL_BACK_OFF);
                self.restart(ctx, events);
                NextStep::Immediately
            }
            Some(wait) => {
                self.back_off = Some((wait * 2).min(MAX_BACK_OFF));
                let text = format!(
                    "Back-off restarting failed container {} in pod {}",
                    self.name, ctx.pod
                );
                events.push(ContainerEvent::Warning("BackOff", text));
                let until = ctx.now.instant + ctx.settings.scale_wait(wait);
                self.last_termination = Some(ended.clone());
                self.state = ContainerState::CrashBackOff { until, wait };
                NextStep::At(until)
            }
        }
    }

    pub(super) fn restart(&mut self, ctx: &ContainerContext<'_>, events: &mut Vec<ContainerEvent>) {
        if let ContainerState::Terminated(ended) = &self.state {
            self.last_termination = Some(ended.clone());
        }
        self.restarts += 1;
        self.pull(ctx, events);
    }
}

/// Returns the back-off after this number of failures.
fn back_off(failures: u32) -> Duration {
    (INITIAL_BACK_OFF * 2_u32.saturating_pow(failures.min(10))).min(MAX_BACK_OFF)
}

/// Formats a duration like Go.
pub(super) fn go_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, millis) {
        (0, 0) => "0s".to_owned(),
        (0, millis) => format!("{millis}ms"),
        (seconds, 0) if seconds < 60 => format!("{seconds}s"),
        (seconds, 0) => format!("{}m{}s", seconds / 60, seconds % 60),
        (seconds, millis) => format!("{seconds}.{}s", format!("{millis:03}").trim_end_matches('0')),
    }
}

/// Returns a made-up image size, always the same for an image.
fn image_size(image: &str) -> u64 {
    let digits = u64::from_str_radix(&digest(image)[..6], 16).unwrap_or(0);
    20_000_000 + digits
}
