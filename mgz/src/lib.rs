//! `mgz`: one command from a program to a report.
//!
//! `run` instruments ([`instrumented`], with a [`cache`]), records, analyses and writes one HTML
//! file ([`html`]). [`fix`] applies remedies to the finished program and measures them. The other
//! three commands do the work, as separate processes ([`tools`]).

pub mod affinity;
pub mod agent;
pub mod cache;
pub mod cli;
pub mod doctor;
pub mod elsewhere;
pub mod fix;
pub mod html;
pub mod instrumented;
pub mod known;
pub mod measured;
pub mod nothing;
pub mod private_libraries;
pub mod program;
pub mod python;
pub mod refused_runtime;
pub mod report;
pub mod run;
pub mod serve;
pub mod shell;
pub mod signals;
pub mod tools;
pub mod viewed;
pub mod watched;
pub mod windows_only;
