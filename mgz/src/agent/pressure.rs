//! Share of the time in which some task waited for a processor.

use std::path::Path;

/// Percent of the last ten seconds during which some task waited, as the kernel reports it below
/// `proc`. Without that report (no CONFIG_PSI, or psi=0): the part of the runnable tasks that
/// waited, by the load of the last minute. `None` if neither is known.
pub fn cpu_pressure(proc: &Path, processors: usize) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(proc.join(name)).ok();
    let stalls = read("pressure/cpu").and_then(|text| {
        let some = text.lines().find(|line| line.starts_with("some "))?;
        let average = some.split(' ').find_map(|f| f.strip_prefix("avg10="))?;
        average.parse().ok()
    });
    stalls.or_else(|| {
        let load: f64 = read("loadavg")?.split(' ').next()?.parse().ok()?;
        Some(100.0 * (1.0 - processors as f64 / load.max(1e-9)).max(0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_read_or_replaced_by_the_load() {
        let proc = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(proc.path().join(name), text).unwrap();
        assert_eq!(cpu_pressure(proc.path(), 2), None);
        write("loadavg", "8.00 4.00 2.00 3/400 1234\n");
        assert_eq!(cpu_pressure(proc.path(), 2), Some(75.0));
        assert_eq!(cpu_pressure(proc.path(), 16), Some(0.0));
        std::fs::create_dir(proc.path().join("pressure")).unwrap();
        write(
            "pressure/cpu",
            "some avg10=18.99 avg60=14.52 avg300=10.24 total=16675797866\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        );
        assert_eq!(cpu_pressure(proc.path(), 2), Some(18.99));
    }
}
