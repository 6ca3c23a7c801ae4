//! Repeated large steps. [`crate::stages::strides`] counts these by magnitude only; repetitions
//! show if a magnitude is a single step. Counts, minima and maxima merge in any order.

/// Repeated far steps of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarStep {
    /// Number of steps that equal the previous one.
    pub repeats: u64,
    /// The least of these steps.
    pub least: i64,
    /// The greatest of these steps.
    pub greatest: i64,
}

impl FarStep {
    const NONE: FarStep = FarStep {
        repeats: 0,
        least: i64::MAX,
        greatest: i64::MIN,
    };

    /// The repeated step, if there is only one.
    pub fn only(&self) -> Option<i64> {
        (self.least == self.greatest).then_some(self.least)
    }
}

/// Steps of all instructions.
#[derive(Clone, Debug, Default)]
pub struct FarSteps {
    by_site: Vec<FarStep>,
}

impl FarSteps {
    /// Counts a step that equals the previous one.
    #[inline]
    pub fn add(&mut self, site: u32, step: i64) {
        self.add_all(
            site,
            FarStep {
                repeats: 1,
                least: step,
                greatest: step,
            },
        );
    }

    fn add_all(&mut self, site: u32, more: FarStep) {
        let site = site as usize;
        if site >= self.by_site.len() {
            self.by_site.resize(site + 1, FarStep::NONE);
        }
        let all = &mut self.by_site[site];
        *all = FarStep {
            repeats: all.repeats + more.repeats,
            least: all.least.min(more.least),
            greatest: all.greatest.max(more.greatest),
        };
    }

    /// Adds another one.
    pub fn merge(&mut self, other: FarSteps) {
        if self.by_site.is_empty() {
            *self = other;
            return;
        }
        for (site, step) in other.list() {
            self.add_all(site, step);
        }
    }

    /// Instructions with repeated large steps, in order.
    pub fn list(&self) -> Vec<(u32, FarStep)> {
        let all = self.by_site.iter().zip(0..);
        all.filter(|f| f.0.repeats > 0)
            .map(|(step, site)| (site, *step))
            .collect()
    }
}
