//! One container on its way: pulled, started, ready, ended, started again.
//!
//! ```text
//!   Waiting ─► Pulling ─► Starting ─► Running ─► Ended ─► (again, after a back-off)
//!                 └─► PullFailed ─► PullBackOff ─┘ (again)
//! ```
//!
//! It knows nothing of the API: what people and logs are told comes out as [`Said`].

use std::time::Duration;

use k8s_openapi::{api::core::v1::Container, jiff::Timestamp};
use tokio::time::Instant;

use super::script::{Plan, Readiness};
use crate::alive::{
    nodes::identity::{digest, full_image},
    settings::Settings,
};

/// What the stages of a container take on a real machine, more or less.
const PULL: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_millis(500);
const INIT: Duration = Duration::from_millis(500);

/// How long a container or a pull that fails waits: this, then twice as long each time, up to the most.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// A container that ran for so long starts with a fresh back-off.
const FORGIVEN_AFTER: Duration = Duration::from_mins(10);

#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// Starts as an init container and stays.
    Sidecar,
    Main,
}

pub(super) struct Unit {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) role: Role,
    pub(super) plan: Plan,
    pub(super) state: State,
    pub(super) restarts: i32,
    pub(super) last: Option<Ended>,
    pub(super) id: Option<String>,
    /// How long its probes would take to say that it is ready.
    probing: Duration,
    always_pulls: bool,
    failed_pulls: u32,
    runs: u32,
    /// The back-off of the next crash; none before the first.
    back_off: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting,
    Pulling {
        until: Instant,
    },
    /// It was just seen that the image cannot be pulled.
    PullFailed {
        until: Instant,
    },
    PullBackOff {
        until: Instant,
    },
    Starting {
        until: Instant,
    },
    Running {
        since: Now,
    },
    CrashBackOff {
        until: Instant,
        wait: Duration,
    },
    Ended(Ended),
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
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) started: Option<Timestamp>,
    pub(super) finished: Timestamp,
    pub(super) id: Option<String>,
}

/// What happens to a container next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, by itself.
    Idle,
    At(Instant),
    /// It goes on at once, after others have seen its state.
    Seen,
    /// It went on: ask again.
    Again,
}

/// What people and logs are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Normal(&'static str, String),
    Warning(&'static str, String),
    /// The container is started: how often it was before.
    Starts(u32),
    Stops,
}

/// What a container has to know of its pod and its machine.
pub(super) struct Surroundings<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now: Now,
    /// `name_namespace(uid)`, as kubelets name pods in messages.
    pub(super) pod: &'a str,
    pub(super) uid: &'a str,
    /// Whether the machine has the image.
    pub(super) has_image: bool,
    /// Whether it is started again after it ended with this code.
    pub(super) restarts: fn(policy: &str, role: Role, code: i32) -> bool,
    pub(super) policy: &'a str,
}

impl Unit {
    pub(super) fn new(container: &Container, role: Role, plan: Plan) -> Self {
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
            plan,
            state: State::Waiting,
            restarts: 0,
            last: None,
            id: None,
            probing: Duration::from_secs(probing),
            always_pulls: container.image_pull_policy.as_deref() == Some("Always"),
            failed_pulls: 0,
            runs: 0,
            back_off: None,
        }
    }

    /// Goes one step on, if it is time.
    pub(super) fn step(&mut self, around: &Surroundings<'_>, said: &mut Vec<Said>) -> Next {
        let (now, settings) = (around.now, around.settings);
        let wait_for = |until: Instant| (until > now.instant).then_some(Next::At(until));
        match self.state.clone() {
            State::Waiting => {
                self.pull(around, said);
                Next::Again
            }
            State::Pulling { until } => wait_for(until).unwrap_or_else(|| self.pulled(around, said)),
            State::PullFailed { until } => {
                self.state = State::PullBackOff { until };
                let text = format!("Back-off pulling image \"{}\"", self.image);
                said.push(Said::Normal("BackOff", text));
                said.push(Said::Warning("Failed", "Error: ImagePullBackOff".to_owned()));
                Next::At(until)
            }
            State::PullBackOff { until } => wait_for(until).unwrap_or_else(|| {
                self.pull(around, said);
                Next::Again
            }),
            State::Starting { until } => wait_for(until).unwrap_or_else(|| {
                self.start(around, said);
                Next::Again
            }),
            State::Running { since } => match self.ends_at(since, settings) {
                Some((until, code)) => wait_for(until).unwrap_or_else(|| {
                    self.end(code, now, said);
                    Next::Seen
                }),
                None => self
                    .ready_at(since, settings)
                    .map_or(Next::Idle, |until| wait_for(until).unwrap_or(Next::Idle)),
            },
            State::CrashBackOff { until, .. } => wait_for(until).unwrap_or_else(|| {
                self.restart(around, said);
                Next::Again
            }),
            State::Ended(ended) => {
                if !(around.restarts)(around.policy, self.role, ended.code) {
                    return Next::Idle;
                }
                self.after_end(&ended, around, said)
            }
        }
    }

    fn pull(&mut self, around: &Surroundings<'_>, said: &mut Vec<Said>) {
        let fails = self.plan.failing_pulls > self.failed_pulls;
        if around.has_image && !self.always_pulls && !fails {
            let text = format!(
                "Container image \"{}\" already present on machine and can be accessed by the pod",
                self.image
            );
            said.push(Said::Normal("Pulled", text));
            self.state = State::Starting {
                until: around.now.instant + around.settings.stage(START),
            };
            return;
        }
        said.push(Said::Normal(
            "Pulling",
            format!("Pulling image \"{}\"", self.image),
        ));
        self.state = State::Pulling {
            until: around.now.instant + around.settings.stage(PULL),
        };
    }

    fn pulled(&mut self, around: &Surroundings<'_>, said: &mut Vec<Said>) -> Next {
        let now = around.now.instant;
        if self.plan.failing_pulls > self.failed_pulls {
            let wait = back_off(self.failed_pulls);
            self.failed_pulls += 1;
            let text = format!("Failed to pull image \"{}\": {}", self.image, self.pull_error());
            said.push(Said::Warning("Failed", text));
            said.push(Said::Warning("Failed", "Error: ErrImagePull".to_owned()));
            self.state = State::PullFailed {
                until: now + around.settings.pause(wait),
            };
            return Next::Seen;
        }
        let took = around.settings.stage(PULL);
        let text = format!(
            "Successfully pulled image \"{}\" in {} ({} including waiting). Image size: {} bytes.",
            self.image,
            go_duration(took),
            go_duration(took),
            size(&self.image)
        );
        said.push(Said::Normal("Pulled", text));
        self.state = State::Starting {
            until: now + around.settings.stage(START),
        };
        Next::Again
    }

    /// What a registry says that does not have the image.
    pub(super) fn pull_error(&self) -> String {
        let image = full_image(&self.image);
        format!(
            "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \
             \"{image}\": {image}: not found"
        )
    }

    fn start(&mut self, around: &Surroundings<'_>, said: &mut Vec<Said>) {
        self.id = Some(digest(&format!("{} {} {}", around.uid, self.name, self.runs)));
        said.push(Said::Normal("Created", "Container created".to_owned()));
        said.push(Said::Normal("Started", "Container started".to_owned()));
        said.push(Said::Starts(self.runs));
        self.runs += 1;
        self.state = State::Running { since: around.now };
    }

    /// When and how it ends by itself, if it does.
    fn ends_at(&self, since: Now, settings: &Settings) -> Option<(Instant, i32)> {
        match self.plan.exit {
            Some(exit) if self.runs <= exit.times => {
                Some((since.instant + settings.pause(exit.after), exit.code))
            }
            _ if self.role == Role::Init => Some((since.instant + settings.stage(INIT), 0)),
            _ => None,
        }
    }

    fn ready_at(&self, since: Now, settings: &Settings) -> Option<Instant> {
        match self.plan.readiness {
            Readiness::Usual => Some(since.instant + settings.stage(self.probing)),
            Readiness::After(wait) => Some(since.instant + settings.pause(wait)),
            Readiness::Never => None,
        }
    }

    pub(super) fn is_ready(&self, now: Instant, settings: &Settings) -> bool {
        match &self.state {
            State::Running { since } => {
                self.role != Role::Init && self.ready_at(*since, settings).is_some_and(|at| at <= now)
            }
            State::Ended(ended) => self.role == Role::Init && ended.code == 0,
            _ => false,
        }
    }

    pub(super) fn end(&mut self, code: i32, now: Now, said: &mut Vec<Said>) {
        self.end_as(code, if code == 0 { "Completed" } else { "Error" }, now, said);
    }

    pub(super) fn end_as(&mut self, code: i32, reason: &'static str, now: Now, said: &mut Vec<Said>) {
        let started = match &self.state {
            State::Running { since } => Some(since.time),
            _ => None,
        };
        said.push(Said::Stops);
        self.state = State::Ended(Ended {
            code,
            reason,
            started,
            finished: now.time,
            id: self.id.clone(),
        });
    }

    /// It ended and is to run again: at once the first time, then after a back-off that grows.
    fn after_end(&mut self, ended: &Ended, around: &Surroundings<'_>, said: &mut Vec<Said>) -> Next {
        let ran = ended
            .started
            .map(|started| ended.finished.duration_since(started).unsigned_abs());
        if ran.is_some_and(|ran| ran >= FORGIVEN_AFTER) {
            self.back_off = None;
        }
        match self.back_off {
            None => {
                self.back_off = Some(FIRST_BACK_OFF);
                self.restart(around, said);
                Next::Again
            }
            Some(wait) => {
                self.back_off = Some((wait * 2).min(LONGEST_BACK_OFF));
                let text = format!(
                    "Back-off restarting failed container {} in pod {}",
                    self.name, around.pod
                );
                said.push(Said::Warning("BackOff", text));
                let until = around.now.instant + around.settings.pause(wait);
                self.last = Some(ended.clone());
                self.state = State::CrashBackOff { until, wait };
                Next::At(until)
            }
        }
    }

    pub(super) fn restart(&mut self, around: &Surroundings<'_>, said: &mut Vec<Said>) {
        if let State::Ended(ended) = &self.state {
            self.last = Some(ended.clone());
        }
        self.restarts += 1;
        self.pull(around, said);
    }
}

/// The wait after so many failures.
fn back_off(failures: u32) -> Duration {
    (FIRST_BACK_OFF * 2_u32.saturating_pow(failures.min(10))).min(LONGEST_BACK_OFF)
}

/// A duration as Go prints it.
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

/// Some size for an image, always the same.
fn size(image: &str) -> u64 {
    let digits = u64::from_str_radix(&digest(image)[..6], 16).unwrap_or(0);
    20_000_000 + digits
}
