//! `/proc/PID/stat` and `/proc/PID/task/TID/stat`.

use std::io;

/// Reads the status of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// It is a zombie or dead.
    pub has_ended: bool,
    /// User and system time, in ticks of the kernel's clock.
    pub cpu_ticks: u64,
}

impl ProcStat {
    /// Reads that of a process.
    pub fn of_process(pid: u32) -> io::Result<ProcStat> {
        ProcStat::read(&format!("/proc/{pid}/stat"))
    }

    /// Reads that of a thread.
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<ProcStat> {
        ProcStat::read(&format!("/proc/{pid}/task/{tid}/stat"))
    }

    fn read(path: &str) -> io::Result<ProcStat> {
        ProcStat::parse(&std::fs::read(path)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &[u8]) -> Option<ProcStat> {
        // `PID (NAME) STATE …`; the name may hold any bytes.
        let behind_name = text.iter().rposition(|&b| b == b')')? + 1;
        let mut fields = std::str::from_utf8(&text[behind_name..])
            .ok()?
            .split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let mut ticks = fields.skip(10).map(|field| field.parse::<u64>().ok());
        Some(ProcStat {
            has_ended,
            cpu_ticks: ticks.next()??.saturating_add(ticks.next()??),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let stat = |state| format!("7 (a) Z 1\n) {state} 1 7 7 0 -1 4194560 1 2 3 4 50 8 0 0 20\n");
        let running = ProcStat {
            has_ended: false,
            cpu_ticks: 58,
        };
        assert_eq!(ProcStat::parse(stat("R").as_bytes()), Some(running));
        assert!(ProcStat::parse(stat("Z").as_bytes()).unwrap().has_ended);
        assert_eq!(ProcStat::parse(b"7 (a) R 1"), None);
        assert_eq!(ProcStat::parse(b""), None);
    }
}
