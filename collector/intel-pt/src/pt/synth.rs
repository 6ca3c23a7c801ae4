//! Records that the kernel does not write: parameters of the clock, locations of counters, PT's
//! configuration, and mappings of a process from before the events were opened. Layouts:
//! tools/lib/perf/include/perf/event.h.

use mgz_perf::kernel::Kernel;
use mgz_perf::mmap_ring::TimeConversion;
use mgz_perf::pmu::Pmu;
use mgz_perf::proc_maps::{self, MapsLine};
use mgz_perf::records::kind;
use mgz_perf::records::record_bytes;
use std::io;
use std::path::Path;

const MISC_USER: u16 = 2;
/// In the `misc` of a build id record: the record contains the id's size.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
const AUXTRACE_INTEL_PT: u64 = 1;
const PROT_EXEC: u32 = 4;
const MAP_PRIVATE: u32 = 2;

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The ratio of the TSC's frequency to that of the crystal, as numerator and denominator (CPUID
/// leaf 0x15); 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TscRatio {
    /// Numerator (EBX).
    pub numerator: u32,
    /// Denominator (EAX).
    pub denominator: u32,
}

impl TscRatio {
    /// The ratio of this machine.
    pub fn read() -> TscRatio {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::__cpuid;
            if __cpuid(0).eax >= 0x15 {
                let leaf = __cpuid(0x15);
                return TscRatio {
                    numerator: leaf.ebx,
                    denominator: leaf.eax,
                };
            }
        }
        TscRatio::default()
    }
}

/// Location of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Id of the counter.
    pub id: u64,
    /// Number of its ring.
    pub ring: u32,
    /// Number of its CPU.
    pub cpu: u32,
}

/// Record of the conversion from the TSC to perf's clock.
pub fn time_conversion(conversion: &TimeConversion) -> io::Result<Vec<u8>> {
    record_bytes(
        kind::TIME_CONV,
        0,
        &words(&[
            u64::from(conversion.shift),
            u64::from(conversion.mult),
            conversion.zero,
        ]),
    )
}

/// Records of the locations of counters; several if necessary.
pub fn id_index(counters: &[Counter], pid: u32) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in counters.chunks(2000) {
        let mut body = vec![part.len() as u64];
        part.iter()
            .for_each(|c| body.extend([c.id, u64::from(c.ring), u64::from(c.cpu), u64::from(pid)]));
        out.extend(record_bytes(kind::ID_INDEX, 0, &words(&body))?);
    }
    Ok(out)
}

/// A record that PT data may be missing behind this offset, as the kernel would write it: for the
/// counter `id`, without a thread.
pub fn truncated(offset: u64, cpu: u32, id: u64, time: u64) -> io::Result<Vec<u8>> {
    const TRUNCATED: u64 = 1;
    let body = [offset, 0, TRUNCATED, 0, time, u64::from(cpu), id];
    record_bytes(kind::AUX, 0, &words(&body))
}

/// Record of the facts that decoders of PT data need.
pub fn auxtrace_info(
    pt: &Pmu,
    conversion: Option<&TimeConversion>,
    ratio: TscRatio,
    filter: &str,
) -> io::Result<Vec<u8>> {
    let clock = conversion.copied().unwrap_or_default();
    // Switch records come from events that follow the tasks; rings belong to CPUs.
    let (switches, snapshot, per_cpu) = (2, 0, 1);
    let mut body = words(&[
        AUXTRACE_INTEL_PT,
        u64::from(pt.kind),
        u64::from(clock.shift),
        u64::from(clock.mult),
        clock.zero,
        u64::from(conversion.is_some()),
        pt.mask("tsc"),
        pt.mask("noretcomp"),
        switches,
        snapshot,
        per_cpu,
        pt.mask("mtc"),
        pt.mask("mtc_period"),
        u64::from(ratio.numerator),
        u64::from(ratio.denominator),
        pt.mask("cyc"),
        pt.max_nonturbo_ratio,
        filter.len() as u64,
    ]);
    if !filter.is_empty() {
        body.extend_from_slice(filter.as_bytes());
        body.resize((body.len() + 1).next_multiple_of(8), 0);
    }
    record_bytes(kind::AUXTRACE_INFO, 0, &body)
}

/// The name of a process and its executable mappings, as they are now, as records of the counter
/// `id` at time 0.
pub fn process(kernel: &dyn Kernel, pid: u32, id: u64) -> io::Result<Vec<u8>> {
    // The same trailer as in the tracking event's records: process and thread, time, CPU, counter.
    let trailer = words(&[pair(pid, pid), 0, 0, id]);
    let padded = |mut text: Vec<u8>| {
        text.resize((text.len() + 1).next_multiple_of(8), 0);
        text
    };
    let name = kernel
        .read(&format!("/proc/{pid}/comm"))
        .unwrap_or_default();
    let mut out = record_bytes(
        kind::COMM,
        0,
        &[
            words(&[pair(pid, pid)]),
            padded(name.trim_end().as_bytes().to_vec()),
            trailer.clone(),
        ]
        .concat(),
    )?;
    let maps = kernel
        .read(&format!("/proc/{pid}/maps"))
        .unwrap_or_default();
    for mapping in proc_maps::lines(&maps).filter(MapsLine::is_executable) {
        let (major, minor) = mapping.device;
        let path = match mapping.name {
            "" => "//anon",
            path => path,
        };
        let body = [
            words(&[
                pair(pid, pid),
                mapping.start,
                mapping.end - mapping.start,
                mapping.offset,
                pair(major, minor),
                mapping.inode,
                0,
                pair(PROT_EXEC | 1, MAP_PRIVATE),
            ]),
            padded(path.as_bytes().to_vec()),
            trailer.clone(),
        ];
        out.extend(record_bytes(kind::MMAP2, MISC_USER, &body.concat())?);
    }
    Ok(out)
}

/// A file's build id as a record; `None` if it has none or cannot be read.
pub fn build_id(path: &str) -> Option<Vec<u8>> {
    use object::Object;
    let file = std::fs::File::open(Path::new(path))
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    // SAFETY: the mapping is private and read-only. If another process shortens the file meanwhile,
    // access faults, as with every mapped input.
    let bytes = unsafe { memmap2::Mmap::map(&file).ok()? };
    let parsed = object::File::parse(&bytes[..]).ok()?;
    let id = parsed.build_id().ok()??;
    let size = id.len().min(20);
    let mut body = u32::MAX.to_le_bytes().to_vec();
    body.extend_from_slice(&id[..size]);
    body.resize(24, 0);
    body.extend_from_slice(&[size as u8, 0, 0, 0]);
    body.extend_from_slice(path.as_bytes());
    // perf pads names to multiples of 64 here but does not require that; records are padded to
    // whole words.
    body.resize((body.len() + 1).next_multiple_of(8), 0);
    record_bytes(kind::BUILD_ID, MISC_USER | MISC_BUILD_ID_SIZE, &body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_has_a_build_id_or_none_and_text_has_none() {
        let exe = std::env::current_exe().unwrap();
        if let Some(bytes) = build_id(exe.to_str().unwrap()) {
            assert_eq!((bytes.len() % 8, bytes[0]), (0, kind::BUILD_ID as u8));
        }
        assert_eq!(build_id("/proc/self/status"), None);
        assert_eq!(build_id("/"), None);
    }
}
