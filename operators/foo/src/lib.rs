//! The sample controller: a Foo owns a Deployment.
