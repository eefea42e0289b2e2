//! Tests of the crate from outside.

mod integration {
    mod evaluation;
    mod limits;
    mod properties;
    mod rules;
}
