//! The table row of a pod: its ready containers, status and restarts.

use serde_json::{Value, json};
use windlass_api::conditions;

use crate::kinds::{
    age,
    row::{Row, items, number, or_none, text},
};

/// The `Completed` condition of finished pods' rows.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// The columns of the table.
pub(super) const COLUMNS: &str = "Name Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates";

pub(super) fn cells(row: &Row<'_>) -> Vec<Value> {
    let pod = row.object;
    let state = PodSummary::of(pod);
    let restarts = match state.last_restart {
        Some(last) if state.restarts > 0 => format!("{} ({} ago)", state.restarts, age::since(last, row.now)),
        _ => state.restarts.to_string(),
    };
    vec![
        row.name(),
        format!("{}/{}", state.ready, state.total).into(),
        state.reason.into(),
        restarts.into(),
        row.age(),
        or_none(text(pod, "/status/podIPs/0/ip")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        readiness_gates(pod),
    ]
}

struct PodSummary<'a> {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<&'a str>,
}

impl<'a> PodSummary<'a> {
    fn of(pod: &'a Value) -> Self {
        let phase = text(pod, "/status/phase");
        let gated = conditions::find(pod, "PodScheduled").is_some_and(|c| c["reason"] == "SchedulingGated");
        let reason = match text(pod, "/status/reason") {
            _ if gated => "SchedulingGated",
            "" => phase,
            reason => reason,
        };
        let sidecars = items(pod, "/spec/initContainers")
            .filter(|c| c["restartPolicy"] == "Always")
            .count();
        let mut state = Self {
            ready: 0,
            total: items(pod, "/spec/containers").count() + sidecars,
            reason: reason.to_owned(),
            restarts: 0,
            last_restart: None,
        };
        let initializing = state.add_init_containers(pod);
        if !initializing || conditions::is_true(pod, "Initialized") {
            state.add_containers(pod);
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut state.reason);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut state.reason);
            }
        }
        state
    }

    fn add_restarts(&mut self, status: &'a Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or(0);
        let finished = status["lastState"]["terminated"]["finishedAt"].as_str();
        // RFC 3339 in UTC to the second sorts as text.
        self.last_restart = self.last_restart.max(finished);
    }

    /// Adds the init containers. Returns whether one of them still keeps the pod from starting, and sets the reason.
    fn add_init_containers(&mut self, pod: &'a Value) -> bool {
        let is_sidecar = |status: &Value| {
            items(pod, "/spec/initContainers")
                .any(|c| c["name"] == status["name"] && c["restartPolicy"] == "Always")
        };
        for (index, status) in items(pod, "/status/initContainerStatuses").enumerate() {
            self.add_restarts(status);
            let terminated = status["state"].get("terminated");
            let waiting = text(status, "/state/waiting/reason");
            if terminated.is_some_and(|t| t["exitCode"] == 0) {
                continue;
            }
            if is_sidecar(status) && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", termination_reason(terminated)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", items(pod, "/spec/initContainers").count()),
            };
            return true;
        }
        false
    }

    fn add_containers(&mut self, pod: &'a Value) {
        let sidecars = items(pod, "/status/initContainerStatuses").filter(|status| {
            items(pod, "/spec/initContainers")
                .any(|c| c["name"] == status["name"] && c["restartPolicy"] == "Always")
        });
        (self.restarts, self.last_restart) = (0, None);
        for status in sidecars {
            self.add_restarts(status);
        }
        let mut running = false;
        let mut failure = None;
        for status in items(pod, "/status/containerStatuses").rev() {
            self.add_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = status["state"].get("terminated") {
                self.reason = termination_reason(terminated);
                if terminated["exitCode"] != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if status["ready"] == true && status["state"].get("running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let ready = conditions::is_true(pod, "Ready");
            self.reason = match failure {
                _ if running && ready => "Running".to_owned(),
                Some(failure) => failure,
                None if running => "NotReady".to_owned(),
                None => return,
            };
        }
    }
}

fn termination_reason(terminated: &Value) -> String {
    match (text(terminated, "/reason"), number(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates: Vec<_> = items(pod, "/spec/readinessGates").collect();
    if gates.is_empty() {
        return "<none>".into();
    }
    let holds = |gate: &&&Value| conditions::is_true(pod, gate["conditionType"].as_str().unwrap_or_default());
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len()).into()
}
