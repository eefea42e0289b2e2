//! Tests of caches on a model server.

mod defects;
mod follow;
mod histories;
mod model;
mod share;
mod stream;
mod subscribe;
