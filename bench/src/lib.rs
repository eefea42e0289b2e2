//! Shared parts of the benchmark programs: reports and charts, process statistics, the process of the embedded
//! server, pods, and a webhook for the servers to ask.
//!
//! ```text
//!   subject ── measures Windlass and the rivals in turns ──► Report ──► table, JSON, chart
//! ```

pub mod allow;
pub mod cases;
pub mod chart;
pub mod machine;
pub mod pods;
pub mod processes;
pub mod proxy;
pub mod report;
pub mod rivals;
pub mod serve;
