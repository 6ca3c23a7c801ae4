//! End of a traced program.

use serde::{Deserialize, Serialize};
use std::fmt;

/// End of a traced program. JSON has it as a text, such as `exit 0`; an empty one while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ProgramStatus {
    /// It has not ended.
    #[default]
    Running,
    /// By `exit` with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It was attached to, and has ended; only its parent knows how.
    Ended,
    /// It was attached to, and runs on.
    RunsOn,
    /// The recorder ended it, as this option told.
    EndedBy(String),
    /// A text unknown to this release.
    Unknown(String),
}

impl ProgramStatus {
    /// The status that the recorder passes on.
    pub fn exit_status(&self) -> i32 {
        match self {
            ProgramStatus::Exited(code) => *code,
            ProgramStatus::Signaled(signal) => 128 + signal,
            ProgramStatus::Running
            | ProgramStatus::Ended
            | ProgramStatus::RunsOn
            | ProgramStatus::EndedBy(_)
            | ProgramStatus::Unknown(_) => 0,
        }
    }

    /// True if it runs, or has ended without an error.
    pub fn is_usual(&self) -> bool {
        matches!(self, ProgramStatus::Running | ProgramStatus::Exited(0))
    }
}

impl fmt::Display for ProgramStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramStatus::Running => Ok(()),
            ProgramStatus::Exited(code) => write!(f, "exit {code}"),
            ProgramStatus::Signaled(signal) => write!(f, "signal {signal}"),
            ProgramStatus::Ended => f.write_str("ended"),
            ProgramStatus::RunsOn => f.write_str("runs on"),
            ProgramStatus::EndedBy(option) => write!(f, "ended by {option}"),
            ProgramStatus::Unknown(text) => f.write_str(text),
        }
    }
}

impl From<String> for ProgramStatus {
    fn from(text: String) -> ProgramStatus {
        let number = |prefix: &str| text.strip_prefix(prefix)?.parse().ok();
        match text.as_str() {
            "" => ProgramStatus::Running,
            "ended" => ProgramStatus::Ended,
            "runs on" => ProgramStatus::RunsOn,
            _ => None
                .or_else(|| number("exit ").map(ProgramStatus::Exited))
                .or_else(|| number("signal ").map(ProgramStatus::Signaled))
                .or_else(|| {
                    let option = text.strip_prefix("ended by ")?;
                    Some(ProgramStatus::EndedBy(option.into()))
                })
                .unwrap_or(ProgramStatus::Unknown(text)),
        }
    }
}

impl From<ProgramStatus> for String {
    fn from(status: ProgramStatus) -> String {
        status.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_reading_and_writing() {
        let known = [
            ("", ProgramStatus::Running),
            ("exit 0", ProgramStatus::Exited(0)),
            ("exit 125", ProgramStatus::Exited(125)),
            ("signal 9", ProgramStatus::Signaled(9)),
            ("ended", ProgramStatus::Ended),
            ("runs on", ProgramStatus::RunsOn),
            (
                "ended by --exit-after",
                ProgramStatus::EndedBy("--exit-after".into()),
            ),
            ("exit x", ProgramStatus::Unknown("exit x".into())),
        ];
        for (text, status) in known {
            assert_eq!(ProgramStatus::from(text.to_owned()), status);
            assert_eq!(status.to_string(), text);
        }
    }
}
