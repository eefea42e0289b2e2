//! Tests of the programs, and of clusters in tests.

mod embedded_tests;
mod programs;
