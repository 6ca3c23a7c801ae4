//! The time that a remedy would save.
//!
//! A remedy moves the addresses of the recorded loads ([`remedy`]). The engine counts the moved
//! rows once more ([`replay`]), the same model predicts their misses, and the difference of the
//! waits is the time saved. `docs/design/what-if.md` explains the method.

mod element;
mod memory;
mod nearest;
pub(crate) mod of_findings;
pub(crate) mod offered;
mod pages;
pub(crate) mod remedies;
pub(crate) mod remedy;
pub(crate) mod replay;
mod rows_of_array;
pub(crate) mod target;

#[cfg(test)]
mod simulated;
