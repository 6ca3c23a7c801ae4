//! Names of this machine.

/// Name of this host; empty if unknown.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Model of the first processor; empty if unknown.
pub fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find(|l| l.starts_with("model name"))
        .unwrap_or("");
    line.split_once(':')
        .map_or("", |(_, name)| name)
        .trim()
        .to_owned()
}
