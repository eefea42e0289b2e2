//! What keeps a policy's nodes where they are.

/// Why nothing new may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Somebody paused it.
    Paused,
    /// It only plans.
    DryRun,
    /// No window is open.
    WindowClosed,
    /// Too many nodes have failed.
    BudgetSpent,
    /// The policy cannot be followed; its status says why.
    Invalid,
}

impl Halt {
    /// For people.
    pub fn message(self) -> &'static str {
        match self {
            Self::Paused => "the policy is paused",
            Self::DryRun => "the policy only plans (dryRun)",
            Self::WindowClosed => "no maintenance window is open",
            Self::BudgetSpent => "too many nodes have failed",
            Self::Invalid => "the policy cannot be followed as it is: see its status",
        }
    }
}
