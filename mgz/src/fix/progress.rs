//! Progress inside of a candidate: a line on the terminal that is replaced, and removed at the end.

use crate::fix::screen;
use crate::fix::sequential::Speedup;
use std::io::{IsTerminal, Write};

/// Moves to the begin of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The line. Nothing is written if standard error is no terminal.
pub struct Progress {
    is_shown: bool,
}

impl Progress {
    /// A line on standard error.
    pub fn new() -> Progress {
        Progress {
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    /// Replaces the line. Errors of the terminal are ignored.
    pub fn show(&self, text: &str) {
        if self.is_shown {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "{CLEAR}{text}");
            let _ = stderr.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

/// The pair that is being run, and the gain of the pairs before it, if it is known.
pub fn pair(number: usize, most: usize, so_far: Option<Speedup>) -> String {
    let gain = so_far.map_or_else(String::new, |speedup| {
        format!(", so far {}", screen::less_time_of(speedup))
    });
    format!("mgz:   pair {number} of at most {most}{gain}")
}

/// The pair that is being run at a distance of prefetches.
pub fn pair_at_distance(number: usize, all: usize, distance: u32) -> String {
    format!("mgz:   pair {number} of {all}, prefetching {distance} iterations ahead")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_shows_its_pairs() {
        assert_eq!(pair(1, 60, None), "mgz:   pair 1 of at most 60");
        let speedup = Speedup {
            value: 1.25,
            lo: 1.0,
            hi: 2.0,
        };
        assert_eq!(
            pair(5, 60, Some(speedup)),
            "mgz:   pair 5 of at most 60, so far 20 % (0–50) less time"
        );
        assert_eq!(
            pair_at_distance(1, 2, 8),
            "mgz:   pair 1 of 2, prefetching 8 iterations ahead"
        );
    }
}
