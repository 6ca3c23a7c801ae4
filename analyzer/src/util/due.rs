//! Order in which threads are due.

use std::cmp::Ordering;

/// The time at which a thread is due, and its index.
#[derive(PartialEq)]
pub struct Due(pub f64, pub usize);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}
