//! Code whose branch sizes are chosen at the end.
//!
//! A function is emitted as fixed bytes with *flexible* pieces between them: branches to
//! instructions of the same function, and alignment. [`Buffer::resolve`] starts with the shortest
//! forms and lengthens branches until all reach; a branch never shrinks again, so this ends.
//!
//! `jrcxz`, `loop`, `loope` and `loopne` exist only in the short form. A far one becomes
//! `op +2; jmp next; jmp target`, none of which touches flags.

use crate::util::byte_buf::ByteBuf;
use crate::x86::encode;

/// A position in the unresolved code: the numbers of fixed bytes and of flexible pieces before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos {
    /// Fixed bytes before.
    pub byte: u32,
    /// Flexible pieces before.
    pub flex: u32,
}

/// A label for branches; see [`Buffer::bind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(pub u32);

/// Kind of a flexible piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flex {
    /// `jmp label`
    Jmp(Label),
    /// `jcc label` with the condition's number.
    Jcc(u8, Label),
    /// `loopne`, `loope`, `loop`, `jrcxz` (opcodes e0–e3), with or without address-size prefix.
    Short {
        /// e0–e3.
        opcode: u8,
        /// Address-size prefix: ecx counts.
        addr32: bool,
        /// Target.
        label: Label,
    },
    /// No-operations up to the next multiple of 16, if they are at most this many bytes.
    Align(u8),
}

impl Flex {
    /// Target of the piece, if it is a branch.
    #[inline]
    fn label(self) -> Option<Label> {
        match self {
            Flex::Jmp(label) | Flex::Jcc(_, label) | Flex::Short { label, .. } => Some(label),
            Flex::Align(_) => None,
        }
    }
}

/// Lengths of the instructions that a flexible piece becomes, in order (zeros: none).
pub type FlexLengths = [u8; 3];

/// Code of one function, unresolved at first.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Fixed bytes.
    pub bytes: ByteBuf,
    flex: Vec<(u32, Flex)>,
    labels: Vec<Pos>,
    /// True if it contains alignment.
    is_aligned: bool,
    /// True if it contains branches that exist only in the short form.
    has_short: bool,
    /// Per flexible piece, once resolved: true for the long form.
    long: Vec<bool>,
    /// Resolved size of the first n flexible pieces, bytes.
    sizes: Vec<u32>,
    /// Instructions that each piece becomes.
    pieces: Vec<FlexLengths>,
}

/// Queries of resolved code.
impl Buffer {
    /// Final offset of a label.
    pub fn offset_of(&self, label: Label) -> u32 {
        self.offset(self.place(label))
    }

    /// Final offset of a place.
    #[inline]
    pub fn offset(&self, pos: Pos) -> u32 {
        pos.byte + self.sizes[pos.flex as usize]
    }

    /// Final offsets of the first labels, which ascend.
    pub fn first_labels(
        &self,
        count: usize,
    ) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone {
        self.labels[..count].iter().map(|&pos| self.offset(pos))
    }

    /// Instructions that each flexible piece becomes.
    pub fn pieces(&self) -> &[FlexLengths] {
        &self.pieces
    }

    /// Maps offsets of fixed bytes inside instructions to final ones. They must ascend.
    pub fn settler(&self) -> impl FnMut(u32) -> u32 {
        let mut before = 0;
        move |byte| {
            while self.flex.get(before).is_some_and(|f| f.0 < byte) {
                before += 1;
            }
            byte + self.sizes[before]
        }
    }
}

/// Maximum length of a conditional jump.
const MAX_JUMP: u64 = 6;
/// Maximum length of any flexible piece, which is that of alignment.
const MAX_PIECE_BYTES: u64 = 15;

#[inline]
fn size(flex: Flex, long: bool, start: u32) -> u32 {
    match (flex, long) {
        (Flex::Jmp(_) | Flex::Jcc(..), false) => 2,
        (Flex::Jmp(_), true) => 5,
        (Flex::Jcc(..), true) => 6,
        (Flex::Short { addr32, .. }, long) => 2 + u32::from(addr32) + if long { 7 } else { 0 },
        (Flex::Align(most), _) => {
            let padding = start.wrapping_neg() & 15;
            if padding <= most.into() { padding } else { 0 }
        }
    }
}

impl Buffer {
    /// Begins a function with `labels` labels, reusing the memory of the previous one.
    pub fn begin(&mut self, labels: usize) {
        self.bytes.clear();
        self.flex.clear();
        // (Each label is set before it is read.)
        self.labels.resize(labels, Pos::default());
        (self.is_aligned, self.has_short) = (false, false);
    }

    /// The current place.
    pub fn pos(&self) -> Pos {
        Pos {
            byte: self.bytes.count() as u32,
            flex: self.flex.len() as u32,
        }
    }

    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels.push(Pos::default());
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts the label here.
    pub fn bind(&mut self, label: Label) {
        self.bind_at(label, self.pos());
    }

    /// Sets the label to an earlier position.
    pub fn bind_at(&mut self, label: Label, pos: Pos) {
        self.labels[label.0 as usize] = pos;
    }

    /// Place of a label.
    pub fn place(&self, label: Label) -> Pos {
        self.labels[label.0 as usize]
    }

    /// The labels from one on, to be set.
    pub fn labels_from(&mut self, first: usize) -> &mut [Pos] {
        &mut self.labels[first..]
    }

    /// Appends a flexible piece.
    pub fn push(&mut self, flex: Flex) {
        self.is_aligned |= matches!(flex, Flex::Align(_));
        self.has_short |= matches!(flex, Flex::Short { .. });
        self.flex.push((self.bytes.count() as u32, flex));
    }

    /// True if the code has alignment in it.
    pub fn is_aligned(&self) -> bool {
        self.is_aligned
    }

    /// True if each flexible piece becomes one instruction.
    pub fn is_even(&self) -> bool {
        !self.is_aligned && !self.has_short
    }

    /// Chooses sizes. Returns the final bytes.
    pub fn resolve(&mut self) -> Vec<u8> {
        self.long.clear();
        self.long.resize(self.flex.len(), false);
        self.add_up();
        // Most branches reach their targets even if all others become long. They are not checked
        // again.
        let most = if self.is_even() {
            MAX_JUMP
        } else {
            MAX_PIECE_BYTES
        };
        let mut open = Vec::new();
        let mut grown = false;
        for (i, &(at, flex)) in self.flex.iter().enumerate() {
            let Some(label) = flex.label() else { continue };
            if !self.reaches(i, label) {
                self.long[i] = true;
                grown = true;
                continue;
            }
            let target = self.labels[label.0 as usize];
            if u64::from(target.byte.abs_diff(at))
                + most * (u64::from(target.flex.abs_diff(i as u32)) + 1)
                > 127
            {
                open.push((i, label));
            }
        }
        while grown {
            self.add_up();
            grown = false;
            open.retain(|&(i, label)| {
                let reaches = self.reaches(i, label);
                if !reaches {
                    self.long[i] = true;
                    grown = true;
                }
                reaches
            });
        }
        self.write()
    }

    /// Adds up the bytes of the first n flexible pieces, for each n.
    fn add_up(&mut self) {
        self.sizes.clear();
        self.sizes.push(0);
        let mut sum = 0;
        self.sizes.extend(
            self.flex
                .iter()
                .zip(&self.long)
                .map(|(&(at, flex), &long)| {
                    sum += size(flex, long, at + sum);
                    sum
                }),
        );
    }

    /// Distance from the end of a flexible piece to a label.
    #[inline]
    fn distance(&self, i: usize, label: Label) -> i64 {
        let target = self.labels[label.0 as usize];
        i64::from(target.byte + self.sizes[target.flex as usize])
            - i64::from(self.flex[i].0 + self.sizes[i + 1])
    }

    /// True if the short form of a branch reaches its label.
    fn reaches(&self, i: usize, label: Label) -> bool {
        i8::try_from(self.distance(i, label)).is_ok()
    }

    fn write(&mut self) -> Vec<u8> {
        let bytes = self.bytes.as_slice();
        let total = bytes.len() + self.sizes[self.flex.len()] as usize;
        // (Short pieces are first written as eight bytes; filler follows the clone.)
        let mut code = Vec::with_capacity(total + 16);
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let mut copied = 0;
        // Appends at most eight bytes, the first lowest, of which `len` count.
        let put = |code: &mut Vec<u8>, bytes: u64, len: u8| {
            let end = code.len() + usize::from(len);
            code.extend_from_slice(&bytes.to_le_bytes());
            code.truncate(end);
            [len, 0, 0]
        };
        for (i, &(at, flex)) in self.flex.iter().enumerate() {
            code.extend_from_slice(&bytes[copied..at as usize]);
            copied = at as usize;
            let distance = |label: Label| self.distance(i, label);
            pieces.push(match (flex, self.long[i]) {
                (Flex::Jmp(l), false) => {
                    put(&mut code, 0xeb | u64::from(distance(l) as u8) << 8, 2)
                }
                (Flex::Jmp(l), true) => {
                    put(&mut code, 0xe9 | u64::from(distance(l) as u32) << 8, 5)
                }
                (Flex::Jcc(condition, l), false) => put(
                    &mut code,
                    u64::from(0x70 | condition) | u64::from(distance(l) as u8) << 8,
                    2,
                ),
                (Flex::Jcc(condition, l), true) => put(
                    &mut code,
                    0x0f | u64::from(0x80 | condition) << 8 | u64::from(distance(l) as u32) << 16,
                    6,
                ),
                (
                    Flex::Short {
                        opcode,
                        addr32,
                        label,
                    },
                    false,
                ) => {
                    short(&mut code, opcode, addr32, distance(label) as u8);
                    [2 + u8::from(addr32), 0, 0]
                }
                (
                    Flex::Short {
                        opcode,
                        addr32,
                        label,
                    },
                    true,
                ) => {
                    short(&mut code, opcode, addr32, 2);
                    code.extend_from_slice(&[0xeb, 5, 0xe9]);
                    code.extend_from_slice(&(distance(label) as i32).to_le_bytes());
                    [2 + u8::from(addr32), 2, 5]
                }
                (Flex::Align(_), _) => {
                    let padding = (self.sizes[i + 1] - self.sizes[i]) as usize;
                    let first = padding.min(9);
                    code.extend_from_slice(encode::nop(first));
                    code.extend_from_slice(encode::nop(padding - first));
                    [first as u8, (padding - first) as u8, 0]
                }
            });
        }
        code.extend_from_slice(&bytes[copied..]);
        self.pieces = pieces;
        code
    }
}

fn short(code: &mut Vec<u8>, opcode: u8, addr32: bool, distance: u8) {
    if addr32 {
        code.push(0x67);
    }
    code.extend_from_slice(&[opcode, distance]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(labels: usize) -> Buffer {
        let mut b = Buffer::default();
        b.begin(labels);
        b
    }

    #[test]
    fn branches_take_the_shortest_form_that_reaches() {
        for gap in [0usize, 100, 127, 128, 129, 1000] {
            let mut b = buffer(1);
            b.push(Flex::Jcc(4, Label(0)));
            b.bytes.extend_from_slice(&vec![0x90; gap]);
            b.bind(Label(0));
            b.bytes.extend_from_slice(&[0xc3]);
            let code = b.resolve();
            if gap <= 127 {
                assert_eq!(code[..2], [0x74, gap as u8]);
            } else {
                assert_eq!(code[..2], [0x0f, 0x84]);
                assert_eq!(code[2..6], (gap as i32).to_le_bytes());
            }
        }
    }

    #[test]
    fn one_branch_that_grows_may_push_another() {
        let mut b = buffer(2);
        b.push(Flex::Jmp(Label(0)));
        b.bytes.extend_from_slice(&[0x90; 125]);
        b.push(Flex::Jmp(Label(1)));
        b.bind(Label(0));
        b.bytes.extend_from_slice(&[0x90; 200]);
        b.bind(Label(1));
        let code = b.resolve();
        assert_eq!(
            code[0], 0xe9,
            "the second jump takes five bytes, so the first no longer reaches"
        );
        assert_eq!(code[1..5], 130i32.to_le_bytes());
    }

    #[test]
    fn backward_branches_count_from_their_own_end() {
        let mut b = buffer(1);
        b.bind(Label(0));
        b.bytes.extend_from_slice(&[0x90; 126]);
        b.push(Flex::Jmp(Label(0)));
        assert_eq!(b.resolve()[126..], [0xeb, 0x80]);
    }

    #[test]
    fn a_far_loop_jumps_twice_and_keeps_flags() {
        let mut b = buffer(1);
        b.bind(Label(0));
        b.bytes.extend_from_slice(&[0x90; 200]);
        b.push(Flex::Short {
            opcode: 0xe2,
            addr32: false,
            label: Label(0),
        });
        let code = b.resolve();
        assert_eq!(code[200..205], [0xe2, 2, 0xeb, 5, 0xe9]);
        assert_eq!(code[205..], (-209i32).to_le_bytes());
        assert_eq!(b.pieces(), [[2, 2, 5]]);
    }

    #[test]
    fn alignment_fills_up_to_sixteen() {
        for before in 0..32usize {
            let mut b = buffer(1);
            b.bytes.extend_from_slice(&vec![0xcc; before]);
            b.push(Flex::Align(15));
            b.bind(Label(0));
            b.bytes.extend_from_slice(&[0xc3]);
            let code = b.resolve();
            assert_eq!(b.offset_of(Label(0)) % 16, 0);
            assert_eq!(code.len(), before.next_multiple_of(16) + 1);
        }
    }

    /// Chooses the long pieces by a check of all pieces in every round.
    fn all_rounds(b: &mut Buffer) {
        b.long = vec![false; b.flex.len()];
        loop {
            b.add_up();
            let more: Vec<bool> = (0..b.flex.len())
                .map(|i| b.long[i] || b.flex[i].1.label().is_some_and(|l| !b.reaches(i, l)))
                .collect();
            if more == b.long {
                return;
            }
            b.long = more;
        }
    }

    #[test]
    fn branches_that_are_not_looked_at_again_reach() {
        let mut seed = 1u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for round in 0..300 {
            let labels = 2 + random(30);
            let mut b = buffer(labels as usize);
            // (Two thirds of the rounds have alignment and `loop`s.)
            let kinds = if round % 3 == 0 { 2 } else { 4 };
            for label in 0..labels {
                b.bind(Label(label));
                b.bytes.extend_from_slice(&vec![0x90; random(30) as usize]);
                for _ in 0..random(4) {
                    let label = Label(random(labels));
                    b.push(match random(kinds) {
                        0 => Flex::Jmp(label),
                        1 => Flex::Jcc(4, label),
                        2 => Flex::Short {
                            opcode: 0xe2,
                            addr32: false,
                            label,
                        },
                        _ => Flex::Align(15),
                    });
                }
            }
            all_rounds(&mut b);
            let sizes = b.sizes.clone();
            b.resolve();
            assert_eq!(b.sizes, sizes);
        }
    }
}
