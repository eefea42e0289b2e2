//! Reasons why a policy starts no reboots.

/// Why no reboot may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// The policy is paused.
    Paused,
    /// The policy is a dry run.
    DryRun,
    /// No window is open.
    WindowClosed,
    /// Too many nodes have failed.
    FailureBudgetExhausted,
    /// The policy's spec is invalid; its status has the error.
    InvalidSpec,
}

impl HaltReason {
    /// Returns a message for humans.
    pub fn message(self) -> &'static str {
        match self {
            Self::Paused => "the policy is paused",
            Self::DryRun => "the policy is in dry run (spec.dryRun)",
            Self::WindowClosed => "no maintenance window is open",
            Self::FailureBudgetExhausted => "too many nodes have failed",
            Self::InvalidSpec => "the policy's spec is invalid: see its status",
        }
    }
}
