//! Tests of the crate from outside.

mod integration {
    mod cases;
    mod evaluation;
    mod json_values;
    mod limits;
    mod properties;
    mod rules;
}
