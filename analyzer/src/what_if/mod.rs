//! What if: the time that a remedy would save.
//!
//! A remedy moves the addresses of the recorded loads ([`remedy`]). The engine counts the moved
//! rows once more ([`replay`]), the same model predicts their misses, and the difference of the
//! waits is the time saved. `docs/design/what-if.md` explains the method.

pub mod command;
mod element;
mod memory;
mod remedies;
mod remedy;
mod replay;
mod rows_of_array;
mod target;
mod words;

#[cfg(test)]
mod simulated;
