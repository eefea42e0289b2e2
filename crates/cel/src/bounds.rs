//! Ranges of sizes and costs, with arithmetic that saturates.

/// Bounds of a cost, in cel-go's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    /// The least cost.
    pub min: u64,
    /// The greatest cost. kube-apiserver compares it with its limits.
    pub max: u64,
}

/// Bounds of a size: code points, bytes, items or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Size {
    pub(crate) const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };

    /// Before the first [`Self::union`].
    pub(crate) const NOTHING: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    pub(crate) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// The cost of a cost for each element.
    pub(crate) fn times_cost(self, cost: CostEstimate) -> CostEstimate {
        CostEstimate {
            min: self.min.saturating_mul(cost.min),
            max: self.max.saturating_mul(cost.max),
        }
    }

    /// The cost of a factor for each element, rounded up.
    pub(crate) fn scaled(self, factor: f64) -> CostEstimate {
        CostEstimate {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }
}

impl CostEstimate {
    pub(crate) const fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn scale(number: u64, factor: f64) -> u64 {
    // The conversion saturates, as cel-go's check does.
    (number as f64 * factor).ceil() as u64
}
