//! Trials of an optional step. If a trial shows that the step saves no time, it is left out for a
//! while.

/// Number of items of a trial. Source: Chosen.
pub(crate) const TRIAL_ITEMS: usize = 1 << 14;
/// Number of items without the step after a failed trial. Source: Chosen.
const ITEMS_AFTER_FAILURE: usize = 1 << 18;

/// The current trial.
#[derive(Default)]
pub(crate) struct Trial {
    all: usize,
    counted: usize,
    passing: usize,
}

impl Trial {
    /// True if the step should be taken for the next items. `fails` decides if a trial has failed,
    /// from the number of items and the sum passed to [`Trial::count`].
    #[inline(always)]
    pub(crate) fn goes_on(
        &mut self,
        items: usize,
        fails: impl FnOnce(usize, usize) -> bool,
    ) -> bool {
        if self.passing > 0 {
            self.passing = self.passing.saturating_sub(items);
            return false;
        }
        if self.all >= TRIAL_ITEMS {
            let Trial { all, counted, .. } = std::mem::take(self);
            if fails(all, counted) {
                self.passing = ITEMS_AFTER_FAILURE;
                return false;
            }
        }
        self.all += items;
        true
    }

    /// Counts items of the kind that decides the trial.
    #[inline(always)]
    pub(crate) fn count(&mut self, items: usize) {
        self.counted += items;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pay_is_left_out_for_a_while() {
        let mut trial = Trial::default();
        let (mut taken, mut asked) = (0, 0);
        while asked < 2 * (TRIAL_ITEMS + ITEMS_AFTER_FAILURE) {
            asked += 64;
            if trial.goes_on(64, |all, counted| counted * 4 > all) {
                taken += 64;
                trial.count(17);
            }
        }
        assert!(
            (2 * TRIAL_ITEMS..3 * TRIAL_ITEMS).contains(&taken),
            "{taken}"
        );
        let mut trial = Trial::default();
        let all = (0..100_000).filter(|_| {
            trial.count(1);
            trial.goes_on(64, |all, counted| counted * 4 > all)
        });
        assert_eq!(all.count(), 100_000);
    }
}
