//! Mappings over time: from single looks to lives.

use crate::objects::ranges::ObjectRange;
use crate::objects::types::Layout;
use crate::objects::{Instance, Object};
use mgz_annotations_schema::ObjectKind;

/// A mapping that is there, or was.
#[derive(Clone, Debug)]
struct Life {
    mapping: ObjectRange,
    begin_ns: u64,
    end_ns: u64,
}

/// All that was mapped in a process.
#[derive(Debug, Default)]
pub struct Lives {
    there: Vec<Life>,
    gone: Vec<Life>,
    last_look: u64,
}

impl Lives {
    /// Adds the mappings at a moment. A mapping that grew or shrank at its end (a heap, a file's
    /// zeros) or at its start (a stack) is the same one.
    pub fn look(&mut self, now: u64, seen: Vec<ObjectRange>) {
        let mut before = std::mem::take(&mut self.there);
        for mapping in seen {
            let same = |l: &Life| {
                l.mapping.kind == mapping.kind
                    && l.mapping.name == mapping.name
                    && (l.mapping.start == mapping.start || l.mapping.end == mapping.end)
            };
            match before.iter().position(same) {
                Some(at) => {
                    let mut life = before.swap_remove(at);
                    // All memory that it ever had belongs to this object.
                    life.mapping.start = life.mapping.start.min(mapping.start);
                    life.mapping.end = life.mapping.end.max(mapping.end);
                    self.there.push(life);
                }
                // It came since the last look. At the first look, nothing was recorded before.
                None => self.there.push(Life {
                    mapping,
                    begin_ns: self.last_look,
                    end_ns: u64::MAX,
                }),
            }
        }
        self.gone
            .extend(before.into_iter().map(|l| Life { end_ns: now, ..l }));
        self.last_look = now;
    }

    /// Rows.
    pub fn instances(self, process: u32) -> impl Iterator<Item = Instance> {
        self.gone.into_iter().chain(self.there).map(move |l| {
            let ObjectRange {
                start,
                end,
                kind,
                name,
                ..
            } = l.mapping;
            let name = match kind {
                // Only the address distinguishes two of them.
                ObjectKind::Anonymous if name.is_empty() => {
                    format!("{start:#x} ({})", size(end - start))
                }
                _ => name,
            };
            let object = Object {
                kind,
                name,
                of_type: String::new(),
                module: String::new(),
                layout: Layout::default(),
            };
            Instance {
                process,
                start,
                bytes: end - start,
                begin_ns: l.begin_ns,
                end_ns: l.end_ns,
                object,
            }
        })
    }
}

/// Bytes in the largest unit of which there is at least one.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    let value = bytes as f64 / 1024f64.powi(unit as i32);
    if value.fract() == 0.0 {
        format!("{value} {}", units[unit as usize])
    } else {
        format!("{value:.1} {}", units[unit as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, kind: ObjectKind, name: &str) -> ObjectRange {
        ObjectRange {
            start,
            end,
            kind,
            name: name.into(),
            guarded: false,
        }
    }

    #[test]
    fn mappings_grow_go_and_come_again() {
        let mut lives = Lives::default();
        let heap = |end| mapping(0x1000, end, ObjectKind::Heap, "[heap]");
        lives.look(
            10,
            vec![
                heap(0x3000),
                mapping(0x8000, 0x9000, ObjectKind::Anonymous, ""),
            ],
        );
        lives.look(20, vec![heap(0x5000)]);
        lives.look(
            30,
            vec![
                heap(0x4000),
                mapping(0x8000, 0x8400, ObjectKind::File, "/data"),
            ],
        );
        let mut list: Vec<_> = lives
            .instances(7)
            .map(|i| (i.start, i.bytes, i.begin_ns, i.end_ns, i.object.name))
            .collect();
        list.sort();
        assert_eq!(
            list,
            [
                (0x1000, 0x4000, 0, u64::MAX, "[heap]".to_owned()),
                (0x8000, 0x400, 20, u64::MAX, "/data".to_owned()),
                (0x8000, 0x1000, 0, 20, "0x8000 (4 KiB)".to_owned()),
            ]
        );
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [1, 1024, 1536, 8 << 20, 3 << 40].map(size),
            ["1 B", "1 KiB", "1.5 KiB", "8 MiB", "3 TiB"]
        );
    }
}
