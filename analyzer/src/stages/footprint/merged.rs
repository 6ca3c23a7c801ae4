//! The loads of one line by several groups, merged.

use crate::data::counts::AccessCounts;
use crate::data::group::AccessClass;
use crate::stages::footprint::packed_entry::Maps;

/// Merged entries of one line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Merged {
    all: Maps,
    strided: u64,
    irregular: u64,
}

impl Merged {
    /// Merges a group's maps; `class` is its class of load.
    #[inline(always)]
    pub fn add(&mut self, class: AccessClass, maps: &Maps) {
        self.all.merge(maps);
        match class {
            AccessClass::Strided => self.strided |= maps.seen,
            AccessClass::Irregular => self.irregular |= maps.seen,
            AccessClass::Constant | AccessClass::Store => {}
        }
    }

    /// The part inside the masked bytes of the line.
    pub fn inside(&self, mask: u64) -> Merged {
        let Maps { seen, twice, bytes } = self.all;
        Merged {
            all: Maps {
                seen: seen & mask,
                twice: twice & mask,
                bytes: bytes & mask,
            },
            strided: self.strided & mask,
            irregular: self.irregular & mask,
        }
    }

    /// True if nothing was loaded here.
    pub fn is_empty(&self) -> bool {
        self.all == Maps::default()
    }

    /// Adds it to a footprint that does not include this line yet.
    #[inline(always)]
    pub fn count_line(&self, counts: &mut AccessCounts) {
        self.count(counts);
        counts.lines64 += u64::from(self.all.bytes != 0);
    }

    /// Adds start addresses and bytes to a footprint, but not the line itself.
    #[inline(always)]
    pub fn count(&self, counts: &mut AccessCounts) {
        let ones = |map: u64| u64::from(map.count_ones());
        counts.footprint += ones(self.all.seen);
        counts.captures += ones(self.all.twice);
        counts.bytes += ones(self.all.bytes);
        counts.strided += ones(self.strided);
        counts.irregular += ones(self.irregular);
    }
}
