//! The object of an entry.

use crate::data::object_map::{Resolver, UNKNOWN};
use crate::stages::pages::{NO_OWNER, UnitEntry};

/// The object of an entry.
pub(crate) fn object_of(
    entry: &UnitEntry,
    spaces: &[u32],
    resolver: &Resolver,
    unit_shift: u32,
) -> u32 {
    match entry.object {
        NO_OWNER => UNKNOWN,
        0 => {
            let process = spaces.get(entry.space as usize).copied().unwrap_or(0);
            // The page belongs to one object for the whole run, so the time does not matter.
            let address = entry.unit << unit_shift;
            if resolver.mixed(process, address) {
                UNKNOWN
            } else {
                resolver.find(process, address, 0)
            }
        }
        object => object,
    }
}
