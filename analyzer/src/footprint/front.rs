//! A small table before the partitions: touches of a line by the same code that follow one another soon are one entry. Where few do, it
//! is left out for a while.
//!
//! Each key has one place in it. Nobody can foresee whether it is the key's own or another's, so there is no branch on that: what was
//! there is always written behind the list of what has to leave, which only gets longer if it was another's.

use super::partition::Partitions;
use super::{Maps, Place};
use crate::reuse::spread;
use std::hint::select_unpredictable;

/// Places at first, and at most: a share of the second-level cache. (There may be many tables with little in them.)
const FEW: usize = 1 << 7;
const MANY: usize = 1 << 12;
/// Touches between two calls of [`Front::drain`], at most.
pub(super) const TOGETHER: usize = 256;
/// Touches of a trial, and touches that pass by after one that has shown that half of them or more find another's key.
const TRIAL: usize = 1 << 14;
const PASSING: usize = 1 << 18;
/// No key: [`super::pack`] gives it to no line of a user-space program.
const FREE: Place = Place { key: u64::MAX, maps: Maps { seen: 0, twice: 0, bytes: 0 } };

/// See the module's text.
#[derive(Default)]
pub(super) struct Front {
    places: Vec<Place>,
    /// What has to leave, and how many.
    leaving: Vec<Place>,
    count: usize,
    /// How many have left since the table has had its size.
    left: usize,
    /// Of so many touches on trial so many have made others leave.
    trial: (usize, usize),
    /// Touches that are still to pass by before the next trial.
    passing: usize,
}

impl Front {
    /// Whether the next touches, so many, are to be added here.
    #[inline(always)]
    pub(super) fn pays(&mut self, touches: usize) -> bool {
        if self.passing > 0 {
            self.passing = self.passing.saturating_sub(touches);
            return false;
        }
        if self.trial.0 >= TRIAL {
            let (all, left) = std::mem::take(&mut self.trial);
            if left * 2 > all {
                self.passing = PASSING;
                return false;
            }
        }
        self.trial.0 += touches;
        true
    }

    /// Adds what is known after a touch.
    #[inline(always)]
    pub(super) fn add(&mut self, key: u64, maps: Maps) {
        if self.places.is_empty() {
            self.resize(FEW);
        }
        let at = (spread(key) >> 32) as usize & (self.places.len() - 1);
        let place = &mut self.places[at];
        let same = place.key == key;
        self.leaving[self.count] = *place;
        self.count += usize::from(!same);
        let known = |map: u64| select_unpredictable(same, map, 0);
        let mut joined = Maps { seen: known(place.maps.seen), twice: known(place.maps.twice), bytes: known(place.maps.bytes) };
        joined.merge(&maps);
        *place = Place { key, maps: joined };
    }

    #[cold]
    fn resize(&mut self, size: usize) {
        self.places = vec![FREE; size];
        self.leaving.resize(TOGETHER + 1, FREE);
        self.left = 0;
    }

    /// Appends what has to leave to partitions.
    #[inline(always)]
    pub(super) fn drain(&mut self, partitions: &mut Partitions) {
        for place in &self.leaving[..self.count] {
            if place.key != FREE.key {
                partitions.push_entry(*place);
            }
        }
        self.trial.1 += self.count;
        self.left += std::mem::take(&mut self.count);
        if self.left > self.places.len() * 2 && self.places.len() < MANY {
            let size = self.places.len() * 4;
            self.flush(partitions);
            self.resize(size.min(MANY));
        }
    }

    /// Appends all to partitions; [`Front::drain`] comes first.
    pub(super) fn flush(&mut self, partitions: &mut Partitions) {
        self.places.drain(..).filter(|p| p.key != FREE.key).for_each(|p| partitions.push_entry(p));
    }
}
