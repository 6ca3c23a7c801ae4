//! New memory for data that a remedy moves out of an object.

use crate::data::memory_units::PAGE_BYTES;
use mgz_annotations_schema::lock::locked;
use std::sync::Mutex;

/// First address of new memory. Programs use nothing between their low addresses and those of
/// position-independent executables.
const FIRST_NEW_ADDRESS: u64 = 0x1000_0000_0000;
/// End of new memory.
const END: u64 = 0x5000_0000_0000;

/// Ranges of new memory, with the objects in them.
#[derive(Default)]
pub(crate) struct NewMemory(Mutex<Vec<Piece>>);

#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    object: u32,
}

impl NewMemory {
    /// Allocates memory for a part of an object. It begins at the same offset in a page as `like`.
    /// None if there is no room.
    pub(crate) fn take(&self, object: u32, bytes: u64, like: u64) -> Option<u64> {
        let mut pieces = locked(&self.0);
        let last = pieces.last().map_or(FIRST_NEW_ADDRESS, |p| p.end);
        let start = last.next_multiple_of(PAGE_BYTES) + like % PAGE_BYTES;
        let end = start.checked_add(bytes).filter(|&end| end <= END)?;
        pieces.push(Piece { start, end, object });
        Some(start)
    }

    /// The object to which an address of new memory belongs.
    pub(crate) fn object(&self, address: u64) -> Option<u32> {
        if !(FIRST_NEW_ADDRESS..END).contains(&address) {
            return None;
        }
        let pieces = locked(&self.0);
        let at = pieces
            .partition_point(|p| p.start <= address)
            .checked_sub(1)?;
        let piece = pieces[at];
        (address < piece.end).then_some(piece.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_belongs_to_its_object() {
        let memory = NewMemory::default();
        let one = memory.take(7, 100, 0x1010).unwrap();
        let other = memory.take(9, 1 << 20, 0x40).unwrap();
        assert_eq!((one % PAGE_BYTES, other % PAGE_BYTES), (0x10, 0x40));
        let found = [one, one + 99, one + 100, other, other + 5000, 0x1010];
        let objects = found.map(|address| memory.object(address));
        assert_eq!(objects, [Some(7), Some(7), None, Some(9), Some(9), None]);
        assert_eq!(memory.take(1, END, 0), None);
    }
}
