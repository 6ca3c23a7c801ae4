//! Code whose branches find their sizes at the end.
//!
//! A function is emitted as fixed bytes with *flexible* pieces between them: branches to instructions of
//! the same function, and alignment. [`Buffer::resolve`] starts with the shortest forms and lengthens
//! branches until all reach; a branch never shrinks again, so this ends.
//!
//! `jrcxz`, `loop`, `loope` and `loopne` exist only in the short form. A far one becomes
//! `op +2; jmp next; jmp target`, none of which touches flags.

use super::asm;

/// A place in the unresolved code: so many fixed bytes and so many flexible pieces lie before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos {
    /// Fixed bytes before.
    pub byte: u32,
    /// Flexible pieces before.
    pub flex: u32,
}

/// A label that branches may aim at; see [`Buffer::bind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(pub u32);

/// What a flexible piece is.
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

/// Lengths of the instructions that a flexible piece became, in order (zeros: none).
pub type Pieces = [u8; 3];

/// Unresolved code of one function.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Fixed bytes.
    pub bytes: Vec<u8>,
    flex: Vec<(u32, Flex)>,
    labels: Vec<Pos>,
}

/// Resolved code.
#[derive(Debug)]
pub struct Resolved {
    /// The bytes.
    pub code: Vec<u8>,
    /// What each flexible piece became.
    pub pieces: Vec<Pieces>,
    /// Bytes that the first n flexible pieces take.
    sizes: Vec<u32>,
    labels: Vec<Pos>,
}

impl Resolved {
    /// Final offset of a label.
    pub fn label(&self, label: Label) -> u32 {
        self.offset(self.labels[label.0 as usize])
    }

    /// Final offset of a place.
    pub fn offset(&self, pos: Pos) -> u32 {
        pos.byte + self.sizes[pos.flex as usize]
    }
}

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
    /// A buffer for a function with `labels` labels.
    pub fn new(labels: usize) -> Buffer {
        Buffer { bytes: Vec::with_capacity(8 * labels), labels: vec![Pos::default(); labels], ..Buffer::default() }
    }

    /// The current place.
    pub fn pos(&self) -> Pos {
        Pos { byte: self.bytes.len() as u32, flex: self.flex.len() as u32 }
    }

    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels.push(Pos::default());
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts the label here.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = self.pos();
    }

    /// Appends a flexible piece; returns its number.
    pub fn push(&mut self, flex: Flex) -> usize {
        self.flex.push((self.bytes.len() as u32, flex));
        self.flex.len() - 1
    }

    /// Whether there is alignment in it.
    pub fn is_aligned(&self) -> bool {
        self.flex.iter().any(|f| matches!(f.1, Flex::Align(_)))
    }

    /// Chooses sizes and writes the final bytes.
    pub fn resolve(self) -> Resolved {
        let mut long = vec![false; self.flex.len()];
        let mut sizes = vec![0u32; self.flex.len() + 1];
        loop {
            for (i, &(at, flex)) in self.flex.iter().enumerate() {
                sizes[i + 1] = sizes[i] + size(flex, long[i], at + sizes[i]);
            }
            let mut grown = false;
            for (i, &(at, flex)) in self.flex.iter().enumerate() {
                if long[i] {
                    continue;
                }
                let (Flex::Jmp(label) | Flex::Jcc(_, label) | Flex::Short { label, .. }) = flex else { continue };
                let target = self.labels[label.0 as usize];
                let target = i64::from(target.byte + sizes[target.flex as usize]);
                if i8::try_from(target - i64::from(at + sizes[i + 1])).is_err() {
                    long[i] = true;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.write(&long, sizes)
    }

    fn write(self, long: &[bool], sizes: Vec<u32>) -> Resolved {
        let total = self.bytes.len() + sizes[self.flex.len()] as usize;
        let mut code = Vec::with_capacity(total);
        let mut pieces = Vec::with_capacity(self.flex.len());
        let mut copied = 0;
        for (i, &(at, flex)) in self.flex.iter().enumerate() {
            code.extend_from_slice(&self.bytes[copied..at as usize]);
            copied = at as usize;
            let end = i64::from(at + sizes[i + 1]);
            let distance = |label: Label| {
                let target = self.labels[label.0 as usize];
                i64::from(target.byte + sizes[target.flex as usize]) - end
            };
            pieces.push(match (flex, long[i]) {
                (Flex::Jmp(l), false) => {
                    code.extend_from_slice(&[0xeb, distance(l) as u8]);
                    [2, 0, 0]
                }
                (Flex::Jmp(l), true) => {
                    code.push(0xe9);
                    code.extend_from_slice(&(distance(l) as i32).to_le_bytes());
                    [5, 0, 0]
                }
                (Flex::Jcc(condition, l), false) => {
                    code.extend_from_slice(&[0x70 | condition, distance(l) as u8]);
                    [2, 0, 0]
                }
                (Flex::Jcc(condition, l), true) => {
                    code.extend_from_slice(&[0x0f, 0x80 | condition]);
                    code.extend_from_slice(&(distance(l) as i32).to_le_bytes());
                    [6, 0, 0]
                }
                (Flex::Short { opcode, addr32, label }, false) => {
                    short(&mut code, opcode, addr32, distance(label) as u8);
                    [2 + u8::from(addr32), 0, 0]
                }
                (Flex::Short { opcode, addr32, label }, true) => {
                    short(&mut code, opcode, addr32, 2);
                    code.extend_from_slice(&[0xeb, 5, 0xe9]);
                    code.extend_from_slice(&(distance(label) as i32).to_le_bytes());
                    [2 + u8::from(addr32), 2, 5]
                }
                (Flex::Align(_), _) => {
                    let padding = (sizes[i + 1] - sizes[i]) as usize;
                    let first = padding.min(9);
                    code.extend_from_slice(asm::nop(first));
                    code.extend_from_slice(asm::nop(padding - first));
                    [first as u8, (padding - first) as u8, 0]
                }
            });
        }
        code.extend_from_slice(&self.bytes[copied..]);
        Resolved { code, pieces, sizes, labels: self.labels }
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

    #[test]
    fn branches_take_the_shortest_form_that_reaches() {
        for gap in [0usize, 100, 127, 128, 129, 1000] {
            let mut b = Buffer::new(1);
            b.push(Flex::Jcc(4, Label(0)));
            b.bytes.extend(std::iter::repeat_n(0x90, gap));
            b.bind(Label(0));
            b.bytes.push(0xc3);
            let code = b.resolve().code;
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
        let mut b = Buffer::new(2);
        b.push(Flex::Jmp(Label(0)));
        b.bytes.extend([0x90; 125]);
        b.push(Flex::Jmp(Label(1)));
        b.bind(Label(0));
        b.bytes.extend([0x90; 200]);
        b.bind(Label(1));
        let code = b.resolve().code;
        assert_eq!(code[0], 0xe9, "the second jump takes five bytes, so the first no longer reaches");
        assert_eq!(code[1..5], 130i32.to_le_bytes());
    }

    #[test]
    fn backward_branches_count_from_their_own_end() {
        let mut b = Buffer::new(1);
        b.bind(Label(0));
        b.bytes.extend([0x90; 126]);
        b.push(Flex::Jmp(Label(0)));
        assert_eq!(b.resolve().code[126..], [0xeb, 0x80]);
    }

    #[test]
    fn a_far_loop_jumps_twice_and_keeps_flags() {
        let mut b = Buffer::new(1);
        b.bind(Label(0));
        b.bytes.extend([0x90; 200]);
        b.push(Flex::Short { opcode: 0xe2, addr32: false, label: Label(0) });
        let resolved = b.resolve();
        assert_eq!(resolved.code[200..205], [0xe2, 2, 0xeb, 5, 0xe9]);
        assert_eq!(resolved.code[205..], (-209i32).to_le_bytes());
        assert_eq!(resolved.pieces, [[2, 2, 5]]);
    }

    #[test]
    fn alignment_fills_up_to_sixteen() {
        for before in 0..32usize {
            let mut b = Buffer::new(1);
            b.bytes.extend(std::iter::repeat_n(0xcc, before));
            b.push(Flex::Align(15));
            b.bind(Label(0));
            b.bytes.push(0xc3);
            let r = b.resolve();
            assert_eq!(r.label(Label(0)) % 16, 0);
            assert_eq!(r.code.len(), before.next_multiple_of(16) + 1);
        }
    }
}
