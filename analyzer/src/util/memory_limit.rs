//! Available memory.

/// Bytes of memory that this process can expect to get: the system's available memory, or less if a
/// limit of the process or of its control group is lower.
pub fn memory() -> usize {
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<usize>()
            .ok()
    };
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .filter_map(number);
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let available = line
        .and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<usize>().ok())
        .map(|k| k.saturating_mul(1024));
    groups
        .chain(available)
        .chain(limit())
        .min()
        .unwrap_or(usize::MAX)
}

/// The limit on the address space (`ulimit -v`).
fn limit() -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes only the struct that it is given.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY)
        .then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_some_memory() {
        assert!(super::memory() > 1 << 20);
    }
}
