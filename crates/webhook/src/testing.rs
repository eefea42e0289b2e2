//! Tools for tests of webhooks.
