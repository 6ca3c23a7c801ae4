//! Arbitrary perf.data files: their ptwrites and call chains are converted to records by a sidecar
//! that fits any mapped file, and their memory samples are decoded.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::sidecar::{PtWrite, Record};
use mgz_intel_pt::import::modules::{Annotations, Modules};
use mgz_intel_pt::import::parts::RecordJoiner;
use mgz_intel_pt::import::resolve::{Slices, slices};
use mgz_perf_data::memory::Level;
use mgz_perf_data::{Session, events};
use mgz_intel_pt::import::dump;
use mgz_intel_pt::import::threads::Stretch;
use mgz_intel_pt::import::paths;
use mgz_annotations_schema::spill::ThreadKey;
use std::collections::HashMap;
use std::path::Path;

/// Records of one and of three slots, written at the addresses that the encoder of the seeds uses.
fn sidecar(output: &str) -> Sidecar {
    let mut sidecar = Sidecar { records: vec![Record { slots: 1, ..Record::default() }, Record { slots: 3, ..Record::default() }], ..Sidecar::default() };
    sidecar.header.flavour = "pt".into();
    sidecar.header.output = output.into();
    sidecar.ptwrites = (0..64).map(|n| PtWrite { ip: n * 24, record: u32::from(n % 2 == 1), part: (n / 2 % 5) as u32 * u32::from(n % 2 == 1) }).collect();
    sidecar
}

fn resolve(bytes: &[u8]) -> Option<()> {
    let session = Session::read(bytes).ok()?;
    let name = &session.spaces.mappings().first()?.path;
    let annotations = Annotations::new(Path::new("x.mgza"), &sidecar(name)).ok()?;
    let modules = Modules::new(&session, vec![annotations], &HashMap::new()).ok()?;
    let order: Vec<_> = (0..session.windows.len()).rev().collect();
    let mut parts = RecordJoiner::default();
    let (mut seen, mut resolved) = (0, 0);
    let totals = events::for_each_unit(
        &session,
        &order,
        &|events| (events.len(), slices(&session.spaces, &modules, &events)),
        &mut |unit| {
            let (count, Slices { list, without_ip, unresolved, doubtful, .. }) = unit.data;
            seen += count as u64;
            let slots: usize = list.iter().map(|s| s.slots.len()).sum();
            assert_eq!(count as u64, slots as u64 + without_ip + unresolved + doubtful, "each ptwrite is in a slice or counted");
            for slice in list {
                assert!(!slice.slots.is_empty());
                for joined in parts.join(|id| if id % 2 == 1 { 5 } else { 1 }, slice) {
                    resolved += joined.slots.len();
                    assert!(!joined.slots.is_empty());
                }
            }
            Ok(())
        },
    );
    assert_eq!(totals.ok()?.events, seen);
    std::hint::black_box(resolved);
    let stretches: Vec<_> = session
        .windows
        .iter()
        .map(|w| {
            let (process, thread) = w.identity.task.unwrap_or((0, 0));
            Stretch { thread: ThreadKey { process, thread }, last_segment: 0, window: w.number }
        })
        .collect();
    if let Some(found) = paths::of_stretches(&session, &modules, &stretches) {
        assert_eq!(found.windows.len(), stretches.len(), "each window has a path or is unknown");
        assert!(found.windows.iter().all(|w| (w.node as usize) < found.tree.nodes.len()));
    }
    Some(())
}

/// Decodes the memory samples.
fn memory(bytes: &[u8]) -> Option<()> {
    let session = Session::read_any(&[bytes]).ok()?;
    let memory = &session.memory;
    let taken = memory.list.len() as u64 + memory.of_no_access + memory.repeated;
    assert!(taken <= session.samples, "each memory sample is a sample");
    for sample in &memory.list {
        let source = sample.source;
        let node = sample.physical.and_then(|at| memory.nodes.of(at));
        let fields = (source.tlb(), source.snoop(), source.hops(), source.locked(), source.blocked());
        std::hint::black_box((node, fields, memory.event(sample)));
        assert_ne!(sample.address, Some(0), "an unknown address has no number");
        if source.level() == Level::RemoteCache || source.level() == Level::RemoteMemory {
            assert_eq!(source.is_remote(), Some(true));
        }
    }
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = memory(bytes);
    let _ = dump::raw_bytes(bytes, &mut std::io::sink());
    let _ = resolve(bytes);
});
