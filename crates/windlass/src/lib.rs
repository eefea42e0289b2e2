//! The toolkit for Kubernetes controllers in Rust.
