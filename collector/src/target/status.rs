//! Exit status of a program.

/// Exit status of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStatus {
    /// By `exit` with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It was attached to, and has ended; only its parent knows how.
    Ended,
    /// It was attached to, and runs on.
    RunsOn,
}

impl ProgramStatus {
    /// The status that the recorder passes on.
    pub fn exit_status(self) -> i32 {
        match self {
            ProgramStatus::Exited(code) => code,
            ProgramStatus::Signaled(signal) => 128 + signal,
            ProgramStatus::Ended | ProgramStatus::RunsOn => 0,
        }
    }
}

impl std::fmt::Display for ProgramStatus {
    /// As the manifest has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramStatus::Exited(code) => write!(f, "exit {code}"),
            ProgramStatus::Signaled(signal) => write!(f, "signal {signal}"),
            ProgramStatus::Ended => f.write_str("ended"),
            ProgramStatus::RunsOn => f.write_str("runs on"),
        }
    }
}
