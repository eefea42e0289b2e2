//! Controllers: what to watch, what to reconcile, and the loop that does it.
