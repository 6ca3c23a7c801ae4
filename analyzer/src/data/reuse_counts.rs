//! Reuse counts of one group of rows.

/// Reuse counts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupReuse {
    /// Touches that are reuses.
    pub reuses: u64,
    /// First touches.
    pub firsts: u64,
    /// Sum of D.
    pub distance: u64,
    /// Greatest D.
    pub distance_max: u64,
    /// Sum of intervals.
    pub interval: u64,
}

impl GroupReuse {
    /// Adds another one.
    #[inline(always)]
    pub fn merge(&mut self, other: &GroupReuse) {
        self.reuses += other.reuses;
        self.firsts += other.firsts;
        self.distance += other.distance;
        self.distance_max = self.distance_max.max(other.distance_max);
        self.interval += other.interval;
    }
}
