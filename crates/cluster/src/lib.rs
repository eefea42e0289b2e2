//! A Kubernetes cluster for tests and newcomers: embedded, real, or the one you have.
