//! A shared, typed, always-current view of Kubernetes objects.
