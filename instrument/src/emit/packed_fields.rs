//! Compact data about each emitted function, kept until the layout is known. A large program has
//! millions of instructions, and touching new memory is expensive.

use crate::emit::{Fixup, FixupKind};

/// Offsets of the original's instructions in the clone.
#[derive(Clone, Debug)]
pub struct Marks {
    offsets: Offsets,
    /// `(number, offset in the clone)` of the instructions whose code begins before their mark.
    begins: Vec<(u32, u32)>,
}

/// `[offset in the original, offset in the clone]`; both columns ascend.
#[derive(Clone, Debug)]
enum Offsets {
    /// The usual form.
    Short(Vec<[u16; 2]>),
    Long(Vec<[u32; 2]>),
}

impl Marks {
    /// `marks`: for each instruction, its offset in the original, and the offset in the clone where
    /// control enters (before its probes). `begins`: for instructions with code on the edge in
    /// front, the number and the offset of that code. All ascend.
    pub fn new(
        marks: impl DoubleEndedIterator<Item = (u32, u32)> + ExactSizeIterator + Clone,
        begins: Vec<(u32, u32)>,
    ) -> Marks {
        let last = marks.clone().next_back().map_or(0, |m| m.0.max(m.1));
        let offsets = match u16::try_from(last) {
            Ok(_) => Offsets::Short(marks.map(|m| [m.0 as u16, m.1 as u16]).collect()),
            Err(_) => Offsets::Long(marks.map(|m| [m.0, m.1]).collect()),
        };
        Marks { offsets, begins }
    }

    /// Keeps the entries of the instructions with these numbers, which ascend, and drops all
    /// others.
    pub fn keep(&mut self, insns: impl Iterator<Item = usize>) {
        self.begins = Vec::new();
        self.offsets = match &self.offsets {
            Offsets::Short(marks) => Offsets::Short(insns.map(|n| marks[n]).collect()),
            Offsets::Long(marks) => Offsets::Long(insns.map(|n| marks[n]).collect()),
        };
    }

    /// Offset in the clone at which control enters the instruction with this number.
    pub fn entry_of_instruction(&self, insn: usize) -> u32 {
        match &self.offsets {
            Offsets::Short(marks) => marks[insn][1].into(),
            Offsets::Long(marks) => marks[insn][1],
        }
    }

    /// Offset in the clone at which control enters the instruction at this offset in the original.
    pub fn entry_at_original(&self, original: u32) -> Option<u32> {
        // Most calls go to starts of functions.
        if original == 0 {
            return match &self.offsets {
                Offsets::Short(marks) => marks.first().filter(|m| m[0] == 0).map(|m| m[1].into()),
                Offsets::Long(marks) => marks.first().filter(|m| m[0] == 0).map(|m| m[1]),
            };
        }
        match &self.offsets {
            Offsets::Short(marks) => marks
                .binary_search_by_key(&original, |m| m[0].into())
                .ok()
                .map(|n| marks[n][1].into()),
            Offsets::Long(marks) => marks
                .binary_search_by_key(&original, |m| m[0])
                .ok()
                .map(|n| marks[n][1]),
        }
    }

    /// Offset in the clone of the first byte that belongs to the first instruction at or after
    /// `original`.
    pub fn begin_at_or_after(&self, original: u64) -> Option<u32> {
        let (next, mark) = match &self.offsets {
            Offsets::Short(marks) => {
                let next = marks.partition_point(|m| u64::from(m[0]) < original);
                (next, marks.get(next)?[1].into())
            }
            Offsets::Long(marks) => {
                let next = marks.partition_point(|m| u64::from(m[0]) < original);
                (next, marks.get(next)?[1])
            }
        };
        Some(
            self.begins
                .binary_search_by_key(&next, |b| b.0 as usize)
                .map_or(mark, |n| self.begins[n].1),
        )
    }
}

/// The fields of a clone that depend on the layout.
#[derive(Clone, Debug, Default)]
pub struct Fixups {
    packed: Vec<Packed>,
    /// Places of the ids of records 0, 1, … of the function, or [`SHARED`] for records without an
    /// id of their own.
    ids: Vec<u32>,
}

/// The record has no id field, since it shares the slot of the previous one.
const SHARED: u32 = u32::MAX;

/// A field. Its place is the distance from the previous field. Large values and distances take an
/// extra entry in front.
#[derive(Clone, Copy, Debug)]
struct Packed {
    value: u32,
    distance: u16,
    /// Bytes from the field's end to the instruction's.
    behind: u8,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Original,
    Code,
    Call,
    Table,
    RecordId,
    Counter,
    /// No field: the upper half of the next field's value…
    Upper,
    /// …or a value to be added to its distance.
    Far,
}

impl Fixups {
    /// Adds a field, `distance` bytes after the previous one.
    #[inline]
    fn push(&mut self, field: &Field, distance: u32) {
        let (low, upper) = (field.value as u32, (field.value >> 32) as u32);
        let distance = u16::try_from(distance).unwrap_or_else(|_| {
            self.packed.push(Packed {
                value: distance,
                distance: 0,
                behind: 0,
                form: Form::Far,
            });
            0
        });
        if upper != 0 {
            self.packed.push(Packed {
                value: upper,
                distance: 0,
                behind: 0,
                form: Form::Upper,
            });
        }
        self.packed.push(Packed {
            value: low,
            distance,
            behind: field.behind,
            form: field.form,
        });
    }

    /// Fixups of `packed` in the order of their places, then those of `ids`.
    pub fn iter(&self) -> impl Iterator<Item = Fixup> {
        let (mut at, mut upper) = (0, 0);
        let open = move |packed: &Packed| {
            let value = u64::from(packed.value) | u64::from(upper) << 32;
            let kind = match packed.form {
                Form::Original => FixupKind::Original(value),
                Form::Code => FixupKind::Code(value),
                Form::Call => FixupKind::Call(value),
                Form::Table => FixupKind::Table {
                    table: packed.value,
                    disp: upper as i32,
                },
                Form::RecordId => FixupKind::RecordId(packed.value),
                Form::Counter => FixupKind::Counter(packed.value),
                Form::Upper => {
                    upper = packed.value;
                    return None;
                }
                Form::Far => {
                    at += packed.value;
                    return None;
                }
            };
            upper = 0;
            at += u32::from(packed.distance);
            Some(Fixup {
                at,
                end: at + 4 + u32::from(packed.behind),
                kind,
            })
        };
        let id = |(&at, number): (&u32, u32)| Fixup {
            at,
            end: at + 4,
            kind: FixupKind::RecordId(number),
        };
        self.packed.iter().filter_map(open).chain(
            self.ids
                .iter()
                .zip(0..)
                .filter(|(at, _)| **at != SHARED)
                .map(id),
        )
    }
}

/// Fixups of a function during emission. Their places may still change.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    all: Vec<Field>,
    ids: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    value: u64,
    at: u32,
    behind: u8,
    form: Form,
}

impl Fields {
    /// Removes all fixups and keeps the memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.ids.clear();
    }

    /// Adds a fixup after all others.
    #[inline]
    pub fn push(&mut self, f: Fixup) {
        // Instructions have 15 bytes at most.
        let behind = f.end.wrapping_sub(f.at + 4) as u8;
        let (value, form) = match f.kind {
            FixupKind::RecordId(number) if behind == 0 => return self.push_id(f.at, number),
            FixupKind::RecordId(number) => (number.into(), Form::RecordId),
            FixupKind::Counter(number) => (number.into(), Form::Counter),
            FixupKind::Original(target) => (target, Form::Original),
            FixupKind::Code(target) => (target, Form::Code),
            FixupKind::Call(target) => (target, Form::Call),
            FixupKind::Table { table, disp } => {
                (u64::from(table) | u64::from(disp as u32) << 32, Form::Table)
            }
        };
        self.all.push(Field {
            value,
            at: f.at,
            behind,
            form,
        });
    }

    /// Adds the id of a record, the last field of its instruction, after all others.
    #[inline]
    pub fn push_id(&mut self, at: u32, number: u32) {
        match (number as usize).wrapping_sub(self.ids.len()) {
            0 => self.ids.push(at),
            1 => self.ids.extend_from_slice(&[SHARED, at]),
            _ => self.all.push(Field {
                value: number.into(),
                at,
                behind: 0,
                form: Form::RecordId,
            }),
        }
    }

    /// Fixups at final places. `settle` and `settle_id` map places to final ones. Each is called
    /// with ascending places.
    pub fn settled(
        &self,
        mut settle: impl FnMut(u32) -> u32,
        mut settle_id: impl FnMut(u32) -> u32,
    ) -> Fixups {
        let mut settled = Fixups {
            packed: Vec::with_capacity(self.all.len()),
            ids: Vec::new(),
        };
        let mut last = 0;
        for field in &self.all {
            let at = settle(field.at);
            settled.push(field, at - last);
            last = at;
        }
        settled.ids = self
            .ids
            .iter()
            .map(|&at| if at == SHARED { SHARED } else { settle_id(at) })
            .collect();
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_the_same_short_and_long() {
        for far in [0, 0x1_0000] {
            let all = [(0, 0), (3, 9), (5, 11), (0x200 + far, 0x300 + far)];
            let marks = Marks::new(all.iter().copied(), vec![(1, 7)]);
            assert_eq!(
                all.map(|m| marks.entry_at_original(m.0)),
                all.map(|m| Some(m.1))
            );
            assert_eq!(
                [0, 1, 2, 3].map(|n| marks.entry_of_instruction(n)),
                all.map(|m| m.1)
            );
            assert_eq!(
                (
                    marks.entry_at_original(1),
                    marks.entry_at_original(0x201 + far)
                ),
                (None, None)
            );
            let from = |at| marks.begin_at_or_after(at);
            assert_eq!(
                [from(0), from(1), from(3), from(4), from(6)],
                [Some(0), Some(7), Some(7), Some(11), Some(0x300 + far)]
            );
            assert_eq!(from(u64::from(0x201 + far)), None);
            assert_eq!(from(u64::MAX), None);
            let mut few = marks.clone();
            few.keep([0, 3].into_iter());
            assert_eq!(
                all.map(|m| few.entry_at_original(m.0)),
                [Some(0), None, None, marks.entry_at_original(0x200 + far)]
            );
        }
    }

    #[test]
    fn fixups_come_back_as_they_were() {
        let fixup = |at, behind, kind| Fixup {
            at,
            end: at + 4 + behind,
            kind,
        };
        let others = [
            fixup(1, 0, FixupKind::Original(u64::MAX - 5)),
            fixup(8, 4, FixupKind::Original(0x1234_5678_9abc)),
            fixup(20, 0, FixupKind::Code(0x40_1000)),
            fixup(30, 0, FixupKind::Call(0x40_2000)),
            fixup(40, 1, FixupKind::Table { table: 7, disp: -8 }),
            fixup(60, 0, FixupKind::RecordId(9)),
            fixup(60 + 0xffff, 0, FixupKind::Call(u32::MAX.into())),
            fixup(60 + 0x1_ffff, 3, FixupKind::Original(0x1_0000_0000)),
            fixup(0x1234_5678, 0, FixupKind::Code(0x40_3000)),
        ];
        let ids = [
            fixup(10, 0, FixupKind::RecordId(0)),
            fixup(50, 0, FixupKind::RecordId(1)),
            fixup(55, 0, FixupKind::RecordId(3)),
        ];
        let mut all = [&others[..], &ids[..]].concat();
        all.sort_by_key(|f| f.at);
        let mut fields = Fields::default();
        all.into_iter().for_each(|f| fields.push(f));
        let fixups = fields.settled(|at| at, |at| at);
        assert_eq!(
            fixups.iter().collect::<Vec<_>>(),
            [&others[..], &ids[..]].concat()
        );
        assert_eq!((size_of::<Packed>(), fixups.ids.len()), (8, 4));
    }
}
