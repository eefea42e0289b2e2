//! Tests of the definition of a Foo, and of the program `foo`.

mod definition;
mod process;
