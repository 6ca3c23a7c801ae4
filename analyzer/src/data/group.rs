//! Groups: the classes of the line pieces, which the stages count by.
//!
//! A group is a line piece ([`crate::data::code_map`]) and a class in one number: four times the
//! index of the piece plus the class. Tables by group are indexed by [`Group::index`].

use serde::{Deserialize, Serialize};

/// Number of classes of a piece.
const CLASSES: u32 = 4;

/// The class of an access: that of its load instruction, or a store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(u32)]
pub enum AccessClass {
    /// The address is the same in all executions.
    #[default]
    Constant = 0,
    /// The address advances by a constant in each iteration of a loop.
    Strided = 1,
    /// Any other load.
    Irregular = 2,
    /// A store, of whatever address.
    Store = 3,
}

impl AccessClass {
    /// The class that a group's number encodes.
    #[inline(always)]
    const fn of_number(number: u32) -> AccessClass {
        match number % CLASSES {
            0 => AccessClass::Constant,
            1 => AccessClass::Strided,
            2 => AccessClass::Irregular,
            _ => AccessClass::Store,
        }
    }

    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            AccessClass::Constant => "constant",
            AccessClass::Strided => "strided",
            AccessClass::Irregular => "irregular",
            AccessClass::Store => "store",
        }
    }
}

/// Index of a line piece, and a class.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Group(u32);

impl Group {
    /// The group of a class of a piece.
    #[inline(always)]
    pub const fn new(piece: u32, class: AccessClass) -> Group {
        Group(piece * CLASSES + class as u32)
    }

    /// The group of a load with this class of the sidecar. Unknown classes count as Irregular.
    #[inline(always)]
    pub fn of_load(piece: u32, class: u8) -> Group {
        let irregular = AccessClass::Irregular as u32;
        Group(piece * CLASSES + u32::from(class).min(irregular))
    }

    /// The group of a number from [`Group::raw`].
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Group {
        Group(raw)
    }

    /// The group with this index in a table by group.
    #[inline(always)]
    pub const fn from_index(index: usize) -> Group {
        Group(index as u32)
    }

    /// Piece and class in one number.
    #[inline(always)]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Index in a table by group.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Index of the line piece.
    #[inline(always)]
    pub const fn piece(self) -> u32 {
        self.0 / CLASSES
    }

    /// Class of the accesses.
    #[inline(always)]
    pub const fn class(self) -> AccessClass {
        AccessClass::of_number(self.0)
    }

    /// The class as named in documents.
    pub const fn class_name(self) -> &'static str {
        self.class().name()
    }

    /// True for stores.
    #[inline(always)]
    pub const fn is_store(self) -> bool {
        self.0 % CLASSES == AccessClass::Store as u32
    }

    /// The group of the stores of the same piece.
    #[inline(always)]
    pub const fn stores(self) -> Group {
        Group(self.0 | AccessClass::Store as u32)
    }

    /// Length of a table by group for this number of pieces.
    pub const fn count(pieces: usize) -> usize {
        pieces * CLASSES as usize
    }

    /// The groups of a piece, by class.
    pub fn of_piece(piece: u32) -> impl Iterator<Item = Group> {
        (0..CLASSES).map(move |class| Group(piece * CLASSES + class))
    }

    /// The groups of this number of pieces, in the order of a table by group.
    pub fn all(pieces: usize) -> impl Iterator<Item = Group> {
        (0..Group::count(pieces)).map(Group::from_index)
    }

    /// A column of groups as plain numbers.
    pub const fn raw_slice(groups: &[Group]) -> &[u32] {
        // SAFETY: a group has the layout of its number (`repr(transparent)`).
        unsafe { std::slice::from_raw_parts(groups.as_ptr().cast(), groups.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_and_class_come_back() {
        for (piece, class) in [
            (0, AccessClass::Constant),
            (0, AccessClass::Store),
            (7, AccessClass::Irregular),
            (u32::MAX / CLASSES, AccessClass::Strided),
        ] {
            let group = Group::new(piece, class);
            assert_eq!((group.piece(), group.class()), (piece, class));
            assert_eq!(Group::from_raw(group.raw()), group);
            assert_eq!(Group::from_index(group.index()), group);
            assert_eq!(group.stores(), Group::new(piece, AccessClass::Store));
        }
        assert_eq!(Group::of_load(5, 9), Group::new(5, AccessClass::Irregular));
        assert_eq!(Group::all(2).count(), Group::count(2));
        assert_eq!(
            Group::raw_slice(&[Group::new(1, AccessClass::Irregular)]),
            [6]
        );
    }
}
