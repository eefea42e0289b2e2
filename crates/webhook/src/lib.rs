//! Admission and conversion webhooks, beside the controllers of a manager.
