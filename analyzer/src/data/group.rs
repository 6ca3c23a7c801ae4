//! Groups: the classes of the line pieces, which the stages count by.
//!
//! A group is a line piece ([`crate::data::code_map`]) and a class in one number: four times the
//! index of the piece plus the class. Tables by group are indexed by [`Group::index`].

/// Number of classes of a piece.
const CLASSES: u32 = 4;
/// Class of Constant loads.
pub const CLASS_CONSTANT: u32 = 0;
/// Class of Strided loads.
pub const CLASS_STRIDED: u32 = 1;
/// Class of Irregular loads.
pub const CLASS_IRREGULAR: u32 = 2;
/// Class of stores.
pub const CLASS_STORE: u32 = 3;

/// Index of a line piece, and a class.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Group(u32);

impl Group {
    /// The group of a class of a piece.
    #[inline(always)]
    pub const fn new(piece: u32, class: u32) -> Group {
        Group(piece * CLASSES + class)
    }

    /// The group of a load. Values above [`CLASS_IRREGULAR`] are no class and count as Irregular.
    #[inline(always)]
    pub fn of_load(piece: u32, class: u8) -> Group {
        Group::new(piece, u32::from(class).min(CLASS_IRREGULAR))
    }

    /// The group of a number from [`Group::raw`].
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Group {
        Group(raw)
    }

    /// The group of a place in a table by group.
    #[inline(always)]
    pub const fn from_index(index: usize) -> Group {
        Group(index as u32)
    }

    /// Piece and class in one number.
    #[inline(always)]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Place in a table by group.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Index of the line piece.
    #[inline(always)]
    pub const fn piece(self) -> u32 {
        self.0 / CLASSES
    }

    /// Class: [`CLASS_CONSTANT`], [`CLASS_STRIDED`], [`CLASS_IRREGULAR`] or [`CLASS_STORE`].
    #[inline(always)]
    pub const fn class(self) -> u32 {
        self.0 % CLASSES
    }

    /// The class as documents have it.
    pub const fn class_name(self) -> &'static str {
        match self.class() {
            CLASS_CONSTANT => "constant",
            CLASS_STRIDED => "strided",
            CLASS_IRREGULAR => "irregular",
            _ => "store",
        }
    }

    /// True for stores.
    #[inline(always)]
    pub const fn is_store(self) -> bool {
        self.class() == CLASS_STORE
    }

    /// The group of the stores of the same piece.
    #[inline(always)]
    pub const fn stores(self) -> Group {
        Group(self.0 | CLASS_STORE)
    }

    /// Length of a table by group for this number of pieces.
    pub const fn count(pieces: usize) -> usize {
        pieces * CLASSES as usize
    }

    /// The groups of a piece, by class.
    pub fn of_piece(piece: u32) -> impl Iterator<Item = Group> {
        (0..CLASSES).map(move |class| Group::new(piece, class))
    }

    /// The groups of this number of pieces, in the order of a table by group.
    pub fn all(pieces: usize) -> impl Iterator<Item = Group> {
        (0..Group::count(pieces)).map(Group::from_index)
    }

    /// A column of groups as one of plain numbers.
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
        for (piece, class) in [(0, 0), (0, 3), (7, 2), (u32::MAX / CLASSES, 3)] {
            let group = Group::new(piece, class);
            assert_eq!((group.piece(), group.class()), (piece, class));
            assert_eq!(Group::from_raw(group.raw()), group);
            assert_eq!(Group::from_index(group.index()), group);
            assert_eq!(group.stores(), Group::new(piece, CLASS_STORE));
        }
        assert_eq!(Group::of_load(5, 9), Group::new(5, CLASS_IRREGULAR));
        assert_eq!(Group::all(2).count(), Group::count(2));
        assert_eq!(Group::raw_slice(&[Group::new(1, 2)]), [6]);
    }
}
