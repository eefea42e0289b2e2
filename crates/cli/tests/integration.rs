//! Tests of the program `windlass`.

mod assets;
mod command;
mod drop_in;
mod notices;
mod process;
mod reboot;
mod run;
mod up;
