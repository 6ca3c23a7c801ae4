use crate::spill::encode::Encoder;
use crate::spill::read::{decode_segment, find_segments};
use crate::spill::*;
use proptest::prelude::*;

fn slot(id: u32, payload: u64) -> Slot {
    Slot {
        payload,
        id,
        aux: 0,
    }
}

/// A loop of three records with strides 8, 0 and −16.
fn strided(n: usize) -> Vec<Slot> {
    (0..n as u64)
        .map(|i| match i % 3 {
            0 => slot(100, 0x7f00_0000_0000 + i / 3 * 8),
            1 => slot(101, 0x5555_0000),
            _ => slot(102, 0x6000_0000u64.wrapping_sub(i / 3 * 16)),
        })
        .collect()
}

fn written(segments: &[(SegmentHeader, Vec<Slot>)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = SpillWriter::create(
        dir.path(),
        ThreadKey {
            process: 7,
            thread: 9,
        },
    )
    .unwrap();
    let mut bytes = FILE_HEADER as u64;
    for (header, slots) in segments {
        bytes += writer.write(header, slots).unwrap();
    }
    let path = writer.path().to_owned();
    assert_eq!(writer.finish().unwrap(), bytes);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    (dir, path)
}

fn read(path: &Path) -> Result<(Vec<(SegmentHeader, Vec<Slot>)>, bool), SpillError> {
    let mut reader = SpillReader::open(path)?;
    let mut all = Vec::new();
    let mut slots = Vec::new();
    while let Some(header) = reader.next(&mut slots)? {
        all.push((header, slots.clone()));
    }
    Ok((all, reader.truncated()))
}

fn sample() -> Vec<(SegmentHeader, Vec<Slot>)> {
    let mut second = strided(100);
    second[17] = Slot {
        payload: u64::MAX,
        id: mgz_abi::slot::MARK_SIGNAL_ENTER,
        aux: 11,
    };
    second[99].aux = u32::MAX;
    vec![
        (
            SegmentHeader {
                kind: SegmentKind::Full,
                first_slot: 0,
                begin_ns: 5,
                end_ns: 9,
                cause: 0,
                slots: 3000,
                ..SegmentHeader::default()
            },
            strided(3000),
        ),
        (
            SegmentHeader {
                kind: SegmentKind::Window,
                first_slot: 1 << 40,
                begin_ns: 10,
                end_ns: 12,
                cause: cause::KILLED,
                slots: 100,
                ring_slots: 60,
                pace: SpeedMeasurement {
                    kind: pace::LAP,
                    records: 2048,
                    ns: (1 << 29) - 1,
                },
                period: 1 << 50,
            },
            second,
        ),
        (
            SegmentHeader {
                slots: 0,
                ..SegmentHeader::default()
            },
            vec![],
        ),
    ]
}

#[test]
fn segments_come_back_as_they_were() {
    let segments = sample();
    let (_dir, path) = written(&segments);
    let (back, truncated) = read(&path).unwrap();
    assert_eq!(back, segments);
    assert!(!truncated);
    let file = SpillFile::open(&path).unwrap();
    assert_eq!(
        file.key(),
        ThreadKey {
            process: 7,
            thread: 9
        }
    );
    let mut slots = Vec::new();
    file.decode(&file.segments()[1], &mut slots).unwrap();
    assert_eq!(
        slots, segments[1].1,
        "a segment is decoded without the ones before it"
    );
}

#[test]
fn a_strided_loop_takes_almost_no_space() {
    let slots = strided(60_000);
    let (_dir, path) = written(&[(SegmentHeader::default(), slots)]);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 1000, "{bytes} bytes for 60,000 predictable slots");
}

#[test]
fn payloads_and_ids_of_all_sizes_come_back() {
    // Steps at the bounds of each stored length, in both directions, each with ids at the smallest
    // and largest stored differences.
    let mut steps: Vec<u64> = (0..64)
        .flat_map(|bit| {
            [
                1u64 << bit,
                (1 << bit) - 1,
                (1u64 << bit).wrapping_neg(),
                !(1 << bit),
            ]
        })
        .collect();
    steps.extend([u64::MAX, 1 << 63]);
    let mut slots = Vec::new();
    let mut payload = 0u64;
    for (i, step) in steps.iter().cycle().take(4 * steps.len()).enumerate() {
        payload = payload.wrapping_add(*step);
        let ids = [
            5,
            5 + 32766,
            5,
            5 + 32767,
            5,
            5 + 32768,
            0,
            u32::MAX,
            1,
            1 << 31,
        ];
        slots.push(slot(ids[i / 3 % ids.len()], payload));
    }
    let header = SegmentHeader {
        slots: slots.len() as u32,
        ..SegmentHeader::default()
    };
    let (_dir, path) = written(&[(header, slots.clone())]);
    assert_eq!(read(&path).unwrap().0[0].1, slots);
}

#[test]
fn every_truncation_is_seen_and_gives_whole_segments_only() {
    let segments = sample();
    let (dir, path) = written(&segments);
    let bytes = std::fs::read(&path).unwrap();
    let ends: Vec<u64> = {
        let file = SpillFile::open(&path).unwrap();
        file.segments()
            .iter()
            .map(|s| s.offset)
            .chain([bytes.len() as u64])
            .collect()
    };
    let cut = dir.path().join("cut");
    for len in 0..bytes.len() {
        std::fs::write(&cut, &bytes[..len]).unwrap();
        let (back, truncated) = read(&cut).unwrap_or_else(|e| panic!("{len}: {e}"));
        let whole = ends[1..].iter().filter(|&&end| end <= len as u64).count();
        assert_eq!(back, segments[..whole], "{len}");
        assert_eq!(truncated, !ends.contains(&(len as u64)), "{len}");
    }
}

#[test]
fn a_changed_byte_is_never_decoded_as_data() {
    let segments = sample();
    let (dir, path) = written(&segments);
    let bytes = std::fs::read(&path).unwrap();
    let bad = dir.path().join("bad");
    for at in FILE_HEADER..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&bad, &changed).unwrap();
        match read(&bad) {
            Err(SpillError::Damaged { .. }) => {}
            Err(other) => panic!("{at}: {other}"),
            Ok((back, truncated)) => {
                assert!(truncated, "{at}: the change went unseen");
                assert!(segments.starts_with(&back), "{at}");
            }
        }
    }
}

#[test]
fn foreign_files_and_other_versions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, b"PAR1 something else that is long enough").unwrap();
    assert!(matches!(read(&path), Err(SpillError::NotASpill)));
    let (_dir, good) = written(&[]);
    let mut bytes = std::fs::read(good).unwrap();
    bytes[8] = 77;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        read(&path),
        Err(SpillError::Version { found: 77 })
    ));
}

#[test]
fn reused_ids_get_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let key = ThreadKey {
        process: 1,
        thread: 2,
    };
    let first = SpillWriter::create(dir.path(), key).unwrap();
    let second = SpillWriter::create(dir.path(), key).unwrap();
    assert_ne!(first.path(), second.path());
}

#[test]
fn files_are_listed_by_thread_and_age() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["10-2-0", "9-11-1", "9-11-0", "9-2-10", "9-2-9"] {
        std::fs::write(dir.path().join(format!("{name}.spill")), "").unwrap();
    }
    for other in [
        "9-2.spill",
        "a-b-0.spill",
        "9-2-0.tmp",
        "notes.txt",
        "1-2-3-4.spill",
    ] {
        std::fs::write(dir.path().join(other), "").unwrap();
    }
    let names: Vec<String> = list(dir.path())
        .unwrap()
        .into_iter()
        .map(|(_, p)| p.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["9-2-9", "9-2-10", "9-11-0", "9-11-1", "10-2-0"]);
    assert!(list(&dir.path().join("missing")).unwrap().is_empty());
}

#[test]
fn a_zero_filled_tail_counts_as_torn() {
    let segments = sample();
    let (_dir, path) = written(&segments);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[0; 500]);
    std::fs::write(&path, &bytes).unwrap();
    let (back, truncated) = read(&path).unwrap();
    assert_eq!(back, segments);
    assert!(truncated);
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let id = prop_oneof![3 => 0u32..20, 1 => any::<u32>(), 1 => 0xffff_ff00u32..0xffff_ff03];
    let payload = prop_oneof![2 => (0u64..64).prop_map(|i| 0x1000 + i * 8), 1 => any::<u64>(), 1 => (0u32..64).prop_map(|s| 1u64 << s)];
    let aux = prop_oneof![8 => Just(0u32), 1 => any::<u32>()];
    (payload, id, aux).prop_map(|(payload, id, aux)| Slot { payload, id, aux })
}

proptest! {
    #[test]
    fn any_slots_come_back(slots in proptest::collection::vec(any_slot(), 0..3000)) {
        let header = SegmentHeader { slots: slots.len() as u32, ..SegmentHeader::default() };
        let (_dir, path) = written(&[(header, slots.clone())]);
        let (back, _) = read(&path).unwrap();
        prop_assert_eq!(&back[0].1, &slots);
    }

    #[test]
    fn wide_registers_change_nothing(slots in proptest::collection::vec(any_slot(), 0..3000)) {
        let (mut quick, mut plain) = (Encoder::default(), Encoder::default());
        for slots in [&slots[..], &slots[..slots.len() / 2]] {
            quick.begin(slots.len());
            quick.push(slots);
            plain.begin(slots.len());
            plain.push_with(slots, false);
            prop_assert_eq!((quick.finish(), quick.bits()), (plain.finish(), plain.bits()));
            prop_assert_eq!(quick.streams(), plain.streams());
        }
    }

    #[test]
    fn in_what_portions_slots_come_changes_nothing(slots in proptest::collection::vec(any_slot(), 0..3000), portions in proptest::collection::vec(0usize..400, 0..20)) {
        let (mut whole, mut parts) = (Encoder::default(), Encoder::default());
        whole.begin(slots.len());
        whole.push(&slots);
        parts.begin(slots.len());
        let mut rest = &slots[..];
        for portion in portions {
            let (some, others) = rest.split_at(portion.min(rest.len()));
            parts.push(some);
            rest = others;
        }
        parts.push(rest);
        prop_assert_eq!(whole.finish(), parts.finish());
        prop_assert_eq!(whole.streams(), parts.streams());
    }

    #[test]
    fn segments_that_nobody_began_or_that_are_ended_twice_are_some(slots in proptest::collection::vec(any_slot(), 0..300)) {
        let mut encoder = Encoder::default();
        encoder.push(&slots);
        prop_assert_eq!(encoder.finish(), slots.len());
        prop_assert_eq!(encoder.finish(), slots.len());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), good: bool) {
        if good && bytes.len() >= FILE_HEADER + SEGMENT_HEADER {
            bytes[..8].copy_from_slice(FILE_MAGIC);
            bytes[8..16].copy_from_slice(&[2, 0, 0, 0, 24, 0, 0, 0]);
            bytes[24..28].copy_from_slice(SEGMENT_MAGIC);
            bytes[28] &= 1;
            bytes[30] = 8;
            for i in [35, 38, 39, 42, 43, 46, 47, 90, 91] { bytes[i] = 0; }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        let _ = read(&path);
        // The same without the check value, which would reject nearly every case.
        if let Ok((_, segments, _, _)) = find_segments(&bytes) {
            for segment in &segments {
                let at = segment.offset as usize;
                let total = SEGMENT_HEADER + segment.lengths.iter().map(|&l| l as usize).sum::<usize>();
                let mut fixed = bytes.clone();
                fixed[at + 48..at + 56].fill(0);
                let mut check = Check::new();
                check.part(&fixed[at..at + SEGMENT_HEADER]);
                let mut from = at + SEGMENT_HEADER;
                for l in segment.lengths {
                    check.part(&fixed[from..from + l as usize]);
                    from += l as usize;
                }
                prop_assert_eq!(from, at + total);
                fixed[at + 48..at + 56].copy_from_slice(&check.value().to_le_bytes());
                let mut out = Vec::new();
                let _ = decode_segment(&fixed, segment, &mut out);
            }
        }
    }
}
