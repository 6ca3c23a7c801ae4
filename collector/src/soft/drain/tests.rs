use crate::soft::drain::*;
use crate::soft::shared_memory::Settings;
use crate::soft::shared_memory::producer::{LAP, Producer, SELF};
use mgz_abi::shared_memory::{MODE_BURST, MODE_FULL};
use mgz_abi::slot::Slot;
use mgz_annotations_schema::spill::{SpillFile, ThreadKey};
use std::cell::Cell;
use std::time::Duration;

/// Everything in a spill folder: per file (by name) its thread and its segments with their slots.
type Contents = Vec<(ThreadKey, Vec<(SegmentHeader, Vec<Slot>)>)>;

fn contents(dir: &Path) -> Contents {
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let file = SpillFile::open(path).unwrap();
            assert!(!file.truncated(), "{}", path.display());
            let segment = |s| {
                let mut out = Vec::new();
                file.decode(s, &mut out).unwrap();
                (s.header, out)
            };
            (file.key(), file.segments().iter().map(segment).collect())
        })
        .collect()
}

fn slot(number: u64) -> Slot {
    Slot {
        payload: 0x7000_0000 + 8 * number,
        id: 5000 + (number % 7) as u32,
        aux: 0,
    }
}

/// Ids of a process that has ended.
fn dead_process() -> u32 {
    let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn small_full() -> Settings {
    Settings {
        mode: MODE_FULL,
        period: 0,
        window: 0,
        chunk_bytes: 4096,
        ring_bytes: 0,
        places: mgz_abi::shared_memory::CHUNKS,
        trigger: None,
        signal: 0,
    }
}

const NO_PROCESS: KnownProcess = KnownProcess {
    pid: 0,
    ended: None,
};

fn killed(pid: u32) -> KnownProcess {
    KnownProcess {
        pid,
        ended: Some(cause::KILLED),
    }
}

fn drain_all(drainer: &Drainer<'_>) {
    let (mut ready, mut segment) = (Vec::new(), EncodedSegment::default());
    loop {
        drainer.ready(&mut ready);
        if ready.is_empty() {
            return;
        }
        for &index in &ready {
            drainer.drain(index, &mut segment, || {});
        }
    }
}

/// Several calls of `mmap` lie between the moment when a slot gets its owner and its first chunk,
/// and a process may end in any of them.
#[test]
fn a_thread_that_is_killed_before_it_begins_has_run_nothing() {
    for mode in [MODE_FULL, MODE_RING, MODE_BURST] {
        let dir = tempfile::tempdir().unwrap();
        let rings = if mode == MODE_RING { 4096 } else { 0 };
        let settings = Settings {
            mode,
            period: 512,
            window: 16,
            ring_bytes: rings,
            ..small_full()
        };
        let shared = SharedMemory::new(settings).unwrap();
        let drainer = Drainer::new(&shared, dir.path(), None);
        let pid = dead_process();
        let mut producer = Producer::claim(&shared, pid, pid);
        producer.control(|c| {
            for number in [&c.cursor, &c.base, &c.guard, &c.ring_start, &c.self_addr] {
                number.set(0);
            }
            c.begin_ns.set(0);
        });
        assert_eq!(
            drainer.sweep(&killed(pid), &mut EncodedSegment::default()),
            0
        );
        assert_eq!(shared.slot(0).state(), STATE_FREE);
        let tally = drainer.tally();
        assert!(
            tally.dropped.is_empty() && tally.threads.is_empty() && tally.truncated.is_empty(),
            "{tally:?}"
        );
    }
}

#[test]
fn a_slot_that_was_handed_on_is_left_to_its_new_owner() {
    let shared = SharedMemory::new(small_full()).unwrap();
    let pid = dead_process();
    let mut producer = Producer::claim(&shared, pid, pid);
    let slot = shared.slot(0);
    // The former owner was found dead, but a new one has come since.
    producer.control(|c| c.tid.set(pid + 1));
    assert!(!take(slot, STATE_LIVE, (pid, pid)));
    assert_eq!(slot.state(), STATE_LIVE);
    assert!(take(slot, STATE_LIVE, (pid, pid + 1)));
    assert_eq!(slot.state(), STATE_CLOSING);
    assert!(
        !take(slot, STATE_LIVE, (pid, pid + 1)),
        "it is taken already"
    );
}

#[test]
fn a_full_recording_is_complete_and_in_order_while_both_sides_run() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let pid = dead_process();
    const TOTAL_SLOTS: u64 = 256 * 50 + 100;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let seen = shared.doorbell();
                    drain_all(&drainer);
                    shared.wait_doorbell(seen, Duration::from_millis(1));
                }
            });
        }
        let mut producer = Producer::claim(&shared, pid, pid);
        for n in 0..TOTAL_SLOTS {
            if n != 0 && n % 256 == 0 {
                producer.publish(0);
                producer.wait_for_place();
            }
            producer.record(slot(n));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        drainer.sweep(&killed(pid), &mut EncodedSegment::default()),
        0
    );
    let tally = drainer.tally();
    let expected = ThreadSeen {
        process: pid,
        thread: pid,
        slots_executed: TOTAL_SLOTS,
        slots_kept: TOTAL_SLOTS,
        segments: 51,
    };
    assert_eq!(tally.threads, [expected]);
    assert_eq!(tally.truncated, BTreeMap::from([("killed".to_owned(), 1)]));
    assert!(
        tally.dropped.is_empty() && tally.problems.is_empty(),
        "{tally:?}"
    );
    let files = contents(dir.path());
    assert_eq!(files.len(), 1);
    let size: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(tally.bytes, size);
    let segments = &files[0].1;
    assert_eq!(
        segments
            .iter()
            .flat_map(|s| &s.1)
            .copied()
            .collect::<Vec<_>>(),
        (0..TOTAL_SLOTS).map(slot).collect::<Vec<_>>()
    );
    let last = segments.last().unwrap().0;
    assert_eq!(
        (last.first_slot, last.slots, last.cause, last.kind),
        (256 * 50, 100, cause::KILLED, SegmentKind::Full)
    );
    assert_eq!(segments[3].0.first_slot, 3 * 256);
    assert_eq!(segments[3].0.cause, cause::WHOLE);
}

#[test]
fn a_dead_threads_ring_gives_its_last_window_across_the_physical_end() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(Settings::ring(100_000, 1000).unwrap()).unwrap();
    let ring_slots = shared.settings().ring_bytes / SLOT;
    let drainer = Drainer::new(&shared, dir.path(), None);
    let pid = dead_process();
    let mut producer = Producer::claim(&shared, pid, pid);
    // 300 slots behind a wrap of the physical ring.
    let written = 2 * ring_slots + 300;
    producer.begin(LAP / SLOT);
    for n in 0..written {
        producer.record(slot(n));
    }
    assert_eq!(
        drainer.sweep(&killed(pid), &mut EncodedSegment::default()),
        0
    );
    let tally = drainer.tally();
    assert_eq!(
        (tally.threads[0].slots_executed, tally.threads[0].slots_kept),
        (written, 1000)
    );
    assert_eq!(tally.truncated["killed"], 1);
    let files = contents(dir.path());
    let (header, slots) = &files[0].1[0];
    assert_eq!(
        (header.first_slot, header.kind),
        (written - 1000, SegmentKind::Window)
    );
    assert_eq!(
        *slots,
        (written - 1000..written).map(slot).collect::<Vec<_>>()
    );
    assert!(header.begin_ns <= header.end_ns);
}

#[test]
fn windows_are_kept_as_published_and_a_rest_never_repeats_them() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(Settings::ring(500, 100).unwrap()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let pid = dead_process();
    let mut producer = Producer::claim(&shared, pid, pid);
    producer.begin(500);
    for _ in 0..3 {
        for _ in 0..500 {
            let n = producer.written();
            producer.record(slot(n));
        }
        producer.publish_window(100, 500);
    }
    // Killed after the window was published, before the numbers of the next lap were set.
    producer.control(|c| {
        c.base.set(c.guard.get() - 500 * SLOT);
        c.cursor.set(c.guard.get());
        c.slots_before.set(1000);
    });
    drainer.sweep(&killed(pid), &mut EncodedSegment::default());
    let tally = drainer.tally();
    assert_eq!(
        (
            tally.threads[0].slots_executed,
            tally.threads[0].slots_kept,
            tally.threads[0].segments
        ),
        (1500, 300, 3)
    );
    assert!(tally.truncated.is_empty());
    for (i, (header, slots)) in contents(dir.path())[0].1.iter().enumerate() {
        let first = 500 * i as u64 + 400;
        assert_eq!(header.first_slot, first);
        assert_eq!(*slots, (first..first + 100).map(slot).collect::<Vec<_>>());
    }
}

#[test]
fn a_chunk_that_was_published_as_its_thread_died_is_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let pid = dead_process();
    let mut producer = Producer::claim(&shared, pid, pid);
    for n in 0..256 {
        producer.record(slot(n));
    }
    let before = producer.control(|c| (c.base.get(), c.cursor.get(), c.guard.get()));
    producer.publish(0);
    // The thread's state while it waits for a free place.
    producer.control(|c| {
        c.base.set(before.0);
        c.cursor.set(before.1);
        c.guard.set(before.2);
        c.slots_before.set(256);
    });
    drainer.sweep(&killed(pid), &mut EncodedSegment::default());
    let tally = drainer.tally();
    assert_eq!(
        (tally.threads[0].slots_executed, tally.threads[0].slots_kept),
        (256, 256)
    );
    assert!(tally.dropped.is_empty());
}

#[test]
fn a_region_that_was_rebased_and_not_committed_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (below, unreadable) in [(1, false), (64, false), (65, true)] {
        let shared = SharedMemory::new(small_full()).unwrap();
        let drainer = Drainer::new(&shared, dir.path(), None);
        let pid = dead_process();
        let mut producer = Producer::claim(&shared, pid, pid);
        producer.control(|c| c.cursor.set(c.cursor.get() - below * SLOT));
        drainer.sweep(&killed(pid), &mut EncodedSegment::default());
        let tally = drainer.tally();
        assert_eq!(
            tally.dropped.contains_key("unreadable_rings"),
            unreadable,
            "{below}"
        );
        assert!(tally.threads.is_empty());
    }
}

#[test]
fn a_slot_goes_from_thread_to_thread_and_each_gets_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let pid = dead_process();
    let mut producer = Producer::claim(&shared, pid, pid);
    // The runtime hands a dead thread's ring to a new thread. The last thread has the ids of the
    // first.
    for (tid, cause) in [
        (pid, cause::WHOLE),
        (pid, cause::END_OF_THREAD),
        (pid + 1, cause::END_OF_THREAD),
        (pid, cause::WHOLE),
    ] {
        producer.tid = tid;
        for n in 0..10 {
            producer.record(slot(n));
        }
        producer.publish(cause.into());
        drain_all(&drainer);
    }
    drainer.sweep(&killed(pid), &mut EncodedSegment::default());
    let tally = drainer.tally();
    assert_eq!(
        tally
            .threads
            .iter()
            .map(|t| (t.thread, t.slots_kept, t.segments))
            .collect::<Vec<_>>(),
        [(pid, 30, 3), (pid + 1, 10, 1)]
    );
    let mut files: Vec<_> = contents(dir.path())
        .into_iter()
        .map(|(key, segments)| (key.thread, segments.len()))
        .collect();
    files.sort();
    assert_eq!(files, [(pid, 1), (pid, 2), (pid + 1, 1)]);
}

#[test]
fn a_freed_slot_can_be_claimed_again() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    // After one round through the table, the first slot is reached again.
    for _ in 0..2 {
        let pid = dead_process();
        let mut producer = Producer::claim(&shared, pid, pid);
        for n in 0..300 {
            if n == 256 {
                producer.publish(0);
            }
            producer.record(slot(n));
        }
        assert_eq!(
            drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
            0
        );
        for _ in 1..MAX_THREADS {
            Producer::claim(&shared, dead_process_id_range(), 1);
        }
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default());
    }
    let tally = drainer.tally();
    assert_eq!(tally.threads.len(), 2);
    assert!(
        tally.threads.iter().all(|t| t.slots_kept == 300),
        "{:?}",
        tally.threads
    );
    assert!(tally.dropped.is_empty(), "{:?}", tally.dropped);
}

#[test]
fn what_a_dead_thread_left_is_not_found_behind_the_next_ones_slots() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let mut kept = Vec::new();
    for slots in [200, 10, 100] {
        let pid = dead_process();
        let mut producer = Producer::claim(&shared, pid, pid);
        (0..slots).for_each(|n| producer.record(slot(n)));
        assert_eq!(
            drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
            0
        );
        kept.push((pid, slots));
        // Back to the first slot.
        for _ in 1..MAX_THREADS {
            Producer::claim(&shared, dead_process_id_range(), 1);
        }
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default());
    }
    kept.sort_unstable();
    assert_eq!(
        drainer
            .tally()
            .threads
            .iter()
            .map(|t| (t.process, t.slots_kept))
            .collect::<Vec<_>>(),
        kept
    );
}

/// A process id that no process can have.
fn dead_process_id_range() -> u32 {
    0x7fff_fff0
}

#[test]
fn a_dead_thread_of_a_living_process_is_closed_at_the_second_look() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let me = std::process::id();
    // No thread has this id.
    let mut producer = Producer::claim(&shared, me, 0x7fff_fff1);
    producer.record(slot(1));
    assert_eq!(
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
        1
    );
    producer.record(slot(2));
    producer.control(|c| c.slots_before.set(c.slots_before.get() + 1));
    assert_eq!(
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
        1,
        "something changed: not dead"
    );
    assert_eq!(
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
        0
    );
    let tally = drainer.tally();
    assert_eq!(tally.threads[0].slots_kept, 2);
    assert!(
        tally.truncated.is_empty(),
        "in full nothing is missing when a thread ends"
    );
    assert_eq!(contents(dir.path())[0].1[0].0.cause, cause::END_OF_THREAD);
}

#[test]
fn the_ring_that_exec_left_behind_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let me = std::process::id();
    let mut old = Producer::claim(&shared, me, me);
    old.record(slot(1));
    assert_eq!(
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
        1
    );
    let mut new = Producer::claim(&shared, me, me);
    new.control(|c| c.begin_ns.set(c.begin_ns.get() + 1));
    new.record(slot(2));
    assert_eq!(
        drainer.sweep(&NO_PROCESS, &mut EncodedSegment::default()),
        1
    );
    assert_eq!(drainer.abandon(&mut EncodedSegment::default()), 1);
    let tally = drainer.tally();
    assert_eq!(
        (
            tally.threads.len(),
            tally.threads[0].slots_kept,
            tally.threads[0].slots_executed
        ),
        (1, 2, 2)
    );
    let causes: Vec<_> = contents(dir.path())
        .iter()
        .map(|(_, s)| (s[0].0.cause, s[0].1[0]))
        .collect();
    assert_eq!(
        causes,
        [(cause::EXEC, slot(1)), (cause::RECORDER_STOPPED, slot(2))]
    );
    assert_eq!(
        tally.truncated,
        BTreeMap::from([("recorder_stopped".to_owned(), 1)])
    );
}

#[test]
fn without_space_recording_stops_and_the_program_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dead_process();
    let run = |spill: &Path, limit| {
        let shared = SharedMemory::new(small_full()).unwrap();
        let drainer = Drainer::new(&shared, spill, limit);
        let mut producer = Producer::claim(&shared, pid, pid);
        for chunk in 0..10u64 {
            for n in 0..256 {
                let n: u64 = chunk * 256 + n;
                // The encoding cannot predict these values: 8 bytes a slot.
                producer.record(Slot {
                    payload: n
                        .wrapping_mul(n ^ 0x9e37_79b9_7f4a_7c15)
                        .wrapping_mul(n << 40 | 1),
                    id: 5000,
                    aux: 0,
                });
            }
            producer.publish(0);
            drain_all(&drainer);
            producer.wait_for_place();
        }
        drainer.sweep(&killed(pid), &mut EncodedSegment::default());
        drainer.tally()
    };
    let missing = dir.path().join("missing");
    let tally = run(&missing, None);
    assert_eq!(tally.dropped["no_space"], 2560);
    assert_eq!(tally.problems.len(), 1);
    assert!(
        tally.problems[0].contains("missing"),
        "{}",
        tally.problems[0]
    );
    assert_eq!(
        (tally.threads[0].slots_executed, tally.threads[0].slots_kept),
        (2560, 0)
    );
    assert_eq!(tally.truncated["no_space"], 1);

    let limited = run(dir.path(), Some(5000));
    let kept = limited.threads[0].slots_kept;
    assert_eq!(limited.dropped["no_space"] + kept, 2560);
    assert!((256..1024).contains(&kept), "{kept}");
    assert!(
        limited.problems[0].contains("5000 bytes"),
        "{}",
        limited.problems[0]
    );
    assert_eq!(
        contents(dir.path())[0]
            .1
            .iter()
            .map(|s| s.1.len() as u64)
            .sum::<u64>(),
        kept
    );
}

#[test]
fn a_stop_is_told_to_the_program() {
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, Path::new("/nonexistent"), None);
    let mut producer = Producer::claim(&shared, 1, 1);
    producer.record(slot(0));
    producer.publish(0);
    assert!(!shared.stopped());
    drain_all(&drainer);
    assert!(shared.stopped());
}

#[test]
fn a_thread_that_was_killed_before_it_said_its_name_does_not_outlive_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let mut nameless = Producer::claim(&shared, 0, 0);
    nameless.control(|c| {
        for word in [&c.base, &c.cursor, &c.guard] {
            word.set(0);
        }
    });
    let me = std::process::id();
    let mut living = Producer::claim(&shared, me, me);
    living.record(slot(1));
    assert_eq!(drainer.abandon(&mut EncodedSegment::default()), 1);
    let tally = drainer.tally();
    assert_eq!((tally.threads.len(), tally.threads[0].process), (1, me));
    assert!(tally.dropped.is_empty(), "{:?}", tally.dropped);
}

#[test]
fn what_a_thread_publishes_after_it_was_given_up_is_nobodys_and_does_not_make_it_wait() {
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedMemory::new(small_full()).unwrap();
    let drainer = Drainer::new(&shared, dir.path(), None);
    let me = std::process::id();
    let mut producer = Producer::claim(&shared, me, me);
    (0..100).for_each(|n| producer.record(slot(n)));
    assert_eq!(drainer.abandon(&mut EncodedSegment::default()), 1);
    for _ in 0..3 * mgz_abi::shared_memory::CHUNKS {
        producer.fill(slot);
        producer.publish(0);
        drain_all(&drainer);
        producer.wait_for_place();
    }
    let tally = drainer.tally();
    assert_eq!(
        (tally.threads[0].slots_kept, tally.threads[0].segments),
        (100, 1)
    );
    assert_eq!(contents(dir.path()).len(), 1);
}

#[test]
fn causes_of_the_runtime_have_their_names() {
    use mgz_abi::shared_memory as shared;
    let causes = [
        (shared::CAUSE_WHOLE, "whole"),
        (shared::CAUSE_END_OF_THREAD, "end_of_thread"),
        (shared::CAUSE_SIGNAL, "signal"),
        (shared::CAUSE_OUTSIDE, "outside"),
        (shared::CAUSE_RETURNED, "returned"),
        (shared::CAUSE_CALLBACK, "callback"),
        (shared::CAUSE_NO_CLONE, "no_clone"),
        (shared::CAUSE_PHASE, "phase"),
    ];
    for (number, name) in causes {
        assert_eq!(cause::name(number as u8), name);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    /// A program that overwrites its control page costs counted data, but never the recorder.
    #[test]
    fn scribbled_numbers_are_survived(
        ring: bool,
        words in proptest::collection::vec((0usize..12, proptest::num::u64::ANY, 0u8..4), 0..12),
        info: [u32; 5],
        numbers: [u64; 4],
        state in 0u32..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let shared = SharedMemory::new(if ring { Settings::ring(500, 100).unwrap() } else { small_full() }).unwrap();
        let drainer = Drainer::new(&shared, dir.path(), Some(1 << 20));
        let mut producer = Producer::claim(&shared, dead_process_id_range(), 1);
        producer.begin(500);
        for n in 0..50 {
            producer.record(slot(n));
        }
        producer.announce(ChunkInfo {
            pid: info[0],
            tid: info[1],
            cause: (info[2] % 12) as u16,
            slots: info[3] % 300,
            offset: info[4] % 5000,
            first_slot: numbers[0] >> (numbers[1] % 64),
            executed: numbers[1] >> (numbers[2] % 64),
            begin_ns: numbers[2],
            end_ns: numbers[3],
            ..ChunkInfo::default()
        });
        producer.control(|c| {
            for (field, value, near) in words {
                let target = match field {
                    0 => &c.cursor,
                    1 => &c.base,
                    2 => &c.guard,
                    3 => &c.ring_start,
                    4 => &c.slots_before,
                    5 => &c.period_before,
                    6 => &c.begin_ns,
                    7 => &c.self_addr,
                    8 => {
                        let published = Cell::new(c.published.load(Ordering::Relaxed));
                        scribble(&published, value, near);
                        c.published.store(published.get(), Ordering::Relaxed);
                        continue;
                    }
                    _ => {
                        c.pid.set(value as u32);
                        continue;
                    }
                };
                scribble(target, value, near);
            }
            c.state.store(state, Ordering::Relaxed);
        });
        let mut segment = EncodedSegment::default();
        let mut ready = Vec::new();
        for _ in 0..3 {
            drainer.ready(&mut ready);
            ready.iter().for_each(|&i| { drainer.drain(i, &mut segment, || {}); });
            drainer.sweep(&killed(dead_process_id_range()), &mut segment);
        }
        drainer.abandon(&mut segment);
        let tally = drainer.tally();
        let kept: u64 = tally.threads.iter().map(|t| t.slots_kept).sum();
        // Bytes across two slots may look like two records that share a slot.
        let read: u64 = contents(dir.path()).iter().flat_map(|f| &f.1).map(|s| s.0.written()).sum();
        proptest::prop_assert_eq!(kept, read);
    }
}

/// Measures: `cargo test --release -p mgz-collector --lib throughput -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, for choosing the size of chunks"]
fn throughput() {
    for (name, random) in [("one strided load", false), ("random payloads", true)] {
        for chunk_bytes in [
            64u64 << 10,
            128 << 10,
            256 << 10,
            512 << 10,
            1 << 20,
            2 << 20,
        ] {
            let dir = tempfile::tempdir().unwrap();
            let shared = SharedMemory::new(Settings {
                chunk_bytes,
                ..small_full()
            })
            .unwrap();
            let drainer = Drainer::new(&shared, dir.path(), None);
            let over = AtomicBool::new(false);
            let began = Instant::now();
            let total = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut ready, mut segment) = (Vec::new(), EncodedSegment::default());
                    while !over.load(Ordering::Relaxed) {
                        let seen = shared.doorbell();
                        drainer.ready(&mut ready);
                        let taken = ready
                            .iter()
                            .filter(|&&i| drainer.drain(i, &mut segment, || {}))
                            .count();
                        if taken == 0 {
                            shared.wait_doorbell(seen, Duration::from_millis(5));
                        }
                    }
                });
                let mut producer = Producer::claim(&shared, 1, 1);
                while producer.written() < 60_000_000 {
                    if random {
                        producer.fill(|n| Slot {
                            payload: 0x7e00_0000_0000
                                + ((n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 38),
                            id: 5000 + (n & 1) as u32,
                            aux: 0,
                        });
                    } else {
                        producer.fill(|n| Slot {
                            payload: 0x7f00_0000_0000 + 8 * n,
                            id: 5000,
                            aux: 0,
                        });
                    }
                    producer.publish(0);
                    producer.wait_for_place();
                }
                over.store(true, Ordering::Relaxed);
                producer.written()
            });
            let tally = drainer.tally();
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{name:<20} {:>5} KiB {:>8.1} M slots/s {:>6.2} bytes/slot",
                chunk_bytes >> 10,
                total as f64 / seconds / 1e6,
                tally.bytes as f64 / total as f64
            );
        }
    }
}

/// Damages a number. Near misses find more than random numbers do.
fn scribble(target: &Cell<u64>, value: u64, near: u8) {
    target.set(match near {
        0 => value,
        1 => target.get().wrapping_add(value % 64).wrapping_sub(32),
        2 => SELF + value % (1 << 20),
        _ => 0,
    });
}
