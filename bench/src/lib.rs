//! What the benchmarks' programs have in common: the report that figures go into, its chart, what a process takes, and the
//! process of the embedded server.
//!
//! ```text
//!   subject ── measures ours and the rivals in turns ──► Report ──► a table, JSON, a chart
//! ```

pub mod cases;
pub mod chart;
pub mod machine;
pub mod processes;
pub mod proxy;
pub mod report;
pub mod serve;
