//! Why a command of the recorder has failed.

/// Why nothing (or not everything) was recorded, with the exit status.
#[derive(Debug)]
pub struct Failure {
    /// 125, 126 or 127.
    pub status: i32,
    /// For the user.
    pub message: String,
}

impl Failure {
    /// A failure of the recorder itself: status 125.
    pub fn own(message: impl std::fmt::Display) -> Failure {
        Failure {
            status: 125,
            message: message.to_string(),
        }
    }
}
