//! What evaluation and compilation may use beyond the cost.
//!
//! cel-go's cost knows neither the memory of a value nor all the time that a step takes: adding a list to itself costs 1,
//! and a loop of such steps makes a value of any size. So there are three more counts:
//!
//! ```text
//!   Limits (of one evaluation) ──► Work ──► Budget (of all evaluations of a request, if the host has one)
//!                                  steps    steps
//!                                  bytes    bytes
//!   CompileBudget: the memory of compiled expressions and their patterns
//! ```
//!
//! Bytes are taken before a value is built, and not given back. Ordinary expressions use a thousandth of the limits.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{EvalError, Value, program::Limits};

/// The default of [`Limits::steps`](crate::Limits::steps): some seconds of work.
pub const DEFAULT_STEPS: u64 = 100_000_000;

/// The default of [`Limits::bytes`](crate::Limits::bytes).
pub const DEFAULT_BYTES: u64 = 64 << 20;

/// The default of a [`CompileBudget`], in bytes.
pub const DEFAULT_COMPILE_BYTES: usize = 32 << 20;

/// What many evaluations may use together, such as those of all policies for one request.
///
/// It is a handle: clones share the same budget, also between threads. Evaluations with [`Limits::shared`] take from it, and
/// end when nothing is left; further ones fail at once.
///
/// ```
/// use windlass_cel::{Budget, Env, Limits};
///
/// let program = Env::kubernetes().compile("lists.range(1000).all(i, i >= 0)").unwrap();
/// let budget = Budget::new(20_000, 1 << 20);
/// let limits = Limits { shared: Some(budget.clone()), ..Limits::default() };
/// assert!(program.evaluate_with(&[], &limits).value.is_ok());
/// assert!(program.evaluate_with(&[], &limits).value.is_err());
/// assert_eq!(budget.steps_left(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<Left>);

#[derive(Debug)]
struct Left {
    steps: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Budget {
    /// What one evaluation may use by default.
    fn default() -> Self {
        Self::new(DEFAULT_STEPS, DEFAULT_BYTES)
    }
}

impl Budget {
    /// Makes a budget of steps and of bytes, as [`Limits`] counts them.
    pub fn new(steps: u64, bytes: u64) -> Self {
        Self(Arc::new(Left {
            steps: AtomicU64::new(steps),
            bytes: AtomicU64::new(bytes),
        }))
    }

    /// Returns the steps that are left. A running evaluation takes them in portions.
    pub fn steps_left(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are left.
    pub fn bytes_left(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Takes steps for work of the host, such as the conversion of a result. Returns whether they were left.
    pub fn take_steps(&self, steps: u64) -> bool {
        take(&self.0.steps, steps)
    }

    /// Takes bytes for a value that the host builds. Returns whether they were left.
    pub fn take_bytes(&self, bytes: u64) -> bool {
        take(&self.0.bytes, bytes)
    }
}

/// Takes an amount, or all that is left.
fn take(left: &AtomicU64, amount: u64) -> bool {
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        Some(left.saturating_sub(amount))
    });
    before.is_ok_and(|before| before >= amount)
}

/// The memory that compiled expressions may take together, such as those of a policy or of a schema.
///
/// It is spent before the next pattern is compiled and before the next expression is planned. What does not fit is an
/// error of that expression, and of all after it.
///
/// ```
/// use windlass_cel::{CompileBudget, Env};
///
/// let mut budget = CompileBudget::new(1 << 20);
/// let env = Env::kubernetes();
/// assert!(env.compile_within("'a'.matches('^[a-z]+$')", &mut budget).is_ok());
/// assert!(env.compile_within(r"'a'.matches('\\pL{100}')", &mut budget).is_err());
/// ```
#[derive(Debug)]
pub struct CompileBudget {
    left: usize,
    limit: usize,
}

impl Default for CompileBudget {
    fn default() -> Self {
        Self::new(DEFAULT_COMPILE_BYTES)
    }
}

impl CompileBudget {
    /// Makes a budget of this many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            limit: bytes,
        }
    }

    /// Returns the bytes that are left.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Takes bytes. If they are not left, nothing is left afterwards.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(self.exhausted())
            }
        }
    }

    /// Gives back a part of what was taken.
    pub(crate) const fn give_back(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes);
    }

    pub(crate) fn exhausted(&self) -> String {
        format!(
            "the expressions and patterns together take more than {} KiB when compiled",
            self.limit >> 10
        )
    }
}

/// What an item of a list takes, in bytes.
pub(crate) const ITEM_BYTES: usize = size_of::<Value<'static>>();

/// What a text in a list takes beside its letters: the item, and the two counts and the padding of what is shared.
pub(crate) const TEXT_BYTES: usize = ITEM_BYTES + 32;

/// Counts the steps and the bytes of an evaluation, and looks now and then at the flag that cancels it.
#[derive(Debug)]
pub(crate) struct Work {
    steps: u64,
    /// The number of steps at which limits and the flag are looked at next.
    look_at: u64,
    step_limit: u64,
    bytes: u64,
    byte_limit: u64,
    /// Cost of the current call beyond that of its arguments and result.
    extra: u64,
    cancel: Option<Arc<AtomicBool>>,
    shared: Option<Budget>,
    /// The steps that the shared budget has paid.
    settled: u64,
}

impl Work {
    /// How many steps are made between two looks at the flag.
    const INTERVAL: u64 = 1024;

    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            steps: 0,
            look_at: Self::INTERVAL.min(limits.steps.saturating_add(1)),
            step_limit: limits.steps,
            bytes: 0,
            byte_limit: limits.bytes,
            extra: 0,
            cancel: limits.cancel.clone(),
            shared: limits.shared.clone(),
            settled: 0,
        }
    }

    /// For work without a host, such as the folding of a constant.
    pub(crate) fn of_constant(steps: u64) -> Self {
        Self::new(&Limits {
            steps,
            ..Limits::default()
        })
    }

    /// For values of the host.
    pub(crate) fn uncounted() -> Self {
        Self::new(&Limits {
            steps: u64::MAX,
            bytes: u64::MAX,
            ..Limits::default()
        })
    }

    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds to the cost of the current call.
    pub(crate) const fn charge(&mut self, cost: u64) {
        self.extra = self.extra.saturating_add(cost);
    }

    /// Takes what was added to the cost of a call.
    pub(crate) fn take_extra(&mut self) -> u64 {
        std::mem::take(&mut self.extra)
    }

    /// Counts steps.
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), EvalError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps >= self.look_at {
            return self.check();
        }
        Ok(())
    }

    /// Counts the steps of reading this many bytes, as of a text whose code points are counted.
    pub(crate) fn read(&mut self, bytes: usize) -> Result<(), EvalError> {
        const BYTES_PER_STEP: u64 = 64;
        self.spend(bytes as u64 / BYTES_PER_STEP)
    }

    /// Counts the bytes of a value that is about to be built, and the steps to write them.
    pub(crate) fn build(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let is_left = match &self.shared {
            Some(shared) => shared.take_bytes(bytes as u64),
            None => true,
        };
        if self.bytes > self.byte_limit || !is_left {
            return Err(EvalError::cost_limit());
        }
        self.read(bytes)
    }

    /// Counts the bytes of a list of this many items.
    pub(crate) fn build_list(&mut self, items: usize) -> Result<(), EvalError> {
        self.build(items.saturating_mul(ITEM_BYTES))
    }

    /// Counts what was decoded to read a value: base64 in JSON, each time it is read.
    pub(crate) fn decoded(&mut self, value: &Value<'_>) -> Result<(), EvalError> {
        match value {
            Value::Bytes(bytes) => self.build(bytes.len()),
            _ => Ok(()),
        }
    }

    /// Looks at the limits and the flag.
    #[cold]
    pub(crate) fn check(&mut self) -> Result<(), EvalError> {
        let is_cancelled = self
            .cancel
            .as_ref()
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if is_cancelled || self.steps > self.step_limit || !self.settle() {
            // Whatever comes next fails as well.
            self.look_at = 0;
            return Err(EvalError::interrupted());
        }
        self.look_at = (self.steps + Self::INTERVAL).min(self.step_limit.saturating_add(1));
        Ok(())
    }

    /// Takes the steps since the last time from the shared budget. Returns whether they were left.
    fn settle(&mut self) -> bool {
        let steps = self.steps - self.settled;
        self.settled = self.steps;
        match &self.shared {
            Some(shared) => shared.take_steps(steps),
            None => true,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.settle();
    }
}
