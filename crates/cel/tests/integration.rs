//! Tests of the crate from outside.

mod integration {
    mod cases;
    mod json_values;
}
