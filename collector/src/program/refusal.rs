//! Reasons why a program cannot be recorded.

/// Why a program is not recorded, with the exit status of `env` and `timeout`.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// 127.
    #[error("{0}: not found")]
    NotFound(String),
    /// 126.
    #[error("{path}: cannot be executed: {why}")]
    CannotExecute {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// 125.
    #[error("{0}")]
    CannotRecord(String),
}

impl Refusal {
    /// Exit status.
    pub fn status(&self) -> i32 {
        match self {
            Refusal::NotFound(_) => 127,
            Refusal::CannotExecute { .. } => 126,
            Refusal::CannotRecord(_) => 125,
        }
    }
}
