//! Shared parts of the benchmark programs: reports and charts, process statistics, and the process of the embedded
//! server.
//!
//! ```text
//!   subject ── measures Windlass and the rivals in turns ──► Report ──► table, JSON, chart
//! ```

pub mod cases;
pub mod chart;
pub mod machine;
pub mod processes;
pub mod proxy;
pub mod report;
pub mod serve;
