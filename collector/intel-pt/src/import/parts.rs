//! Records that several `ptwrite`s write, put together into their slots.
//!
//! Part 0 is the first slot's payload, parts 2k-1 and 2k are the halves of the k-th raw slot. A
//! record with a missing part is dropped and counted, and the next slice is marked as following a
//! loss.

use crate::import::resolve::{Slice, Start};
use mgz_abi::slot::Slot;

/// The state of one thread.
#[derive(Clone, Debug, Default)]
pub struct RecordJoiner {
    /// The first parts of a record in which the last slice ended.
    carried: Vec<Slot>,
    /// Records that lacked a part.
    pub torn: u64,
}

/// Number of parts at the front of `slots` that follow each other in one record.
fn run(slots: &[Slot]) -> usize {
    1 + slots
        .windows(2)
        .take_while(|w| w[1].id == w[0].id && w[1].aux == w[0].aux.wrapping_add(1))
        .count()
}

impl RecordJoiner {
    /// Turns a slice with a slot for each `ptwrite` into slices with the records' slots. `ptwrites`
    /// gives the number of `ptwrite`s that write the record with an id.
    pub fn join(&mut self, ptwrites: impl Fn(u32) -> usize, mut slice: Slice) -> Vec<Slice> {
        let mut parts = std::mem::take(&mut slice.slots);
        if slice.start == Start::Continues {
            self.carried.append(&mut parts);
            std::mem::swap(&mut self.carried, &mut parts);
        } else if self.tear() {
            slice.start = Start::Loss;
        }
        let mut out: Vec<Slice> = Vec::new();
        let mut start = Some(slice.start);
        let mut rest = &parts[..];
        while let Some(head) = rest.first() {
            let (run, whole) = (run(rest), ptwrites(head.id));
            if head.aux != 0 || run < whole {
                if head.aux == 0 && run == rest.len() {
                    self.carried.extend_from_slice(rest);
                    break;
                }
                self.torn += 1;
                start = Some(Start::Loss);
                rest = &rest[run..];
                continue;
            }
            if let Some(start) = start.take() {
                out.push(Slice {
                    start,
                    ..slice.clone()
                });
            }
            if let Some(last) = out.last_mut() {
                last.slots.push(*head);
                let raw = |half: &[Slot]| Slot {
                    payload: half[0].payload,
                    id: half[1].payload as u32,
                    aux: (half[1].payload >> 32) as u32,
                };
                last.slots.extend(rest[1..whole].chunks_exact(2).map(raw));
            }
            rest = &rest[whole..];
        }
        out
    }

    /// Gives up the incomplete record at the end of the last slice. Returns true if there was one.
    pub fn tear(&mut self) -> bool {
        let torn = !std::mem::take(&mut self.carried).is_empty();
        self.torn += u64::from(torn);
        torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start: Start, parts: &[(u32, u32, u64)]) -> Slice {
        let slots = parts
            .iter()
            .map(|&(id, aux, payload)| Slot { payload, id, aux })
            .collect();
        Slice {
            pid: 1,
            tid: 2,
            start,
            begin_ns: 3,
            end_ns: 4,
            slots,
            mappings: vec![5],
            window: 0,
        }
    }

    /// Records below 10 are plain, the others have two raw slots.
    fn ptwrites(id: u32) -> usize {
        if id < 10 { 1 } else { 5 }
    }

    fn gather(id: u32) -> Vec<(u32, u32, u64)> {
        vec![
            (id, 0, 7),
            (id, 1, 0x11),
            (id, 2, 0x33_0000_0022),
            (id, 3, 0x44),
            (id, 4, 0x66_0000_0055),
        ]
    }

    const PASSED_ON: [(u64, u32, u32); 3] = [(7, 10, 0), (0x11, 0x22, 0x33), (0x44, 0x55, 0x66)];

    type Shown = (Start, Vec<(u64, u32, u32)>);

    fn shown(slices: &[Slice]) -> Vec<Shown> {
        slices
            .iter()
            .map(|s| {
                (
                    s.start,
                    s.slots.iter().map(|s| (s.payload, s.id, s.aux)).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn halves_make_raw_slots_even_across_slices() {
        let all = [vec![(1, 0, 1)], gather(10), vec![(2, 0, 2)]].concat();
        let expected = [&[(1, 1, 0)][..], &PASSED_ON, &[(2, 2, 0)]].concat();
        for cut in 0..=all.len() {
            let mut parts = RecordJoiner::default();
            let mut got = parts.join(ptwrites, slice(Start::Switch, &all[..cut]));
            got.extend(parts.join(ptwrites, slice(Start::Continues, &all[cut..])));
            let slots: Vec<_> = shown(&got).into_iter().flat_map(|s| s.1).collect();
            assert_eq!((slots, parts.torn), (expected.clone(), 0), "cut at {cut}");
            assert!(got.iter().all(|s| s.start != Start::Loss));
        }
    }

    #[test]
    fn a_record_that_lacks_a_part_is_dropped_and_what_follows_comes_after_a_loss() {
        for missing in 0..5 {
            let mut all = gather(10);
            all.remove(missing);
            all.push((1, 0, 9));
            let mut parts = RecordJoiner::default();
            let got = parts.join(ptwrites, slice(Start::Continues, &all));
            assert_eq!(
                shown(&got),
                [(Start::Loss, vec![(9, 1, 0)])],
                "without part {missing}"
            );
            assert!(parts.torn >= 1);
        }
        let mut parts = RecordJoiner::default();
        assert!(
            parts
                .join(ptwrites, slice(Start::Continues, &gather(10)[..3]))
                .is_empty()
        );
        assert_eq!(
            shown(&parts.join(ptwrites, slice(Start::Switch, &[(1, 0, 9)]))),
            [(Start::Loss, vec![(9, 1, 0)])]
        );
        assert_eq!(parts.torn, 1);
    }
}
