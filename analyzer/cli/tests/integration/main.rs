//! Tests of the analyzer through its command and its files. They are one binary, because each
//! binary takes seconds to build. (Tests that measure memory are in `large.rs`.)

mod beside;
mod closer;
mod columns;
mod command;
mod common;
mod matrix;
mod measured;
mod models;
mod papers;
mod places;
mod screens;
mod simulate;
mod slices;
mod watched_reuses;
mod what_if;

use std::process::{Command, Output};

/// Runs `mgz-analyze`.
fn analyze(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(arguments)
        .output()
        .unwrap()
}
