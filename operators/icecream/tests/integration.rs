//! Tests of the definition of an Icecream, and of the program `icecream`.

mod definition;
mod process;
