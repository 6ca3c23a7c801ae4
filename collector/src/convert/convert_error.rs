//! Reasons why nothing is converted.

use mgz_annotations_schema::sidecar::SidecarError;
use mgz_annotations_schema::spill::SpillError;
use std::path::{Path, PathBuf};

/// Why nothing was converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// A sidecar cannot be used.
    #[error("{path}: {error}")]
    Sidecar {
        /// The sidecar.
        path: PathBuf,
        /// The error in it.
        error: SidecarError,
    },
    /// A sidecar is not the one that the trace was made with.
    #[error("{path}: this sidecar belongs to another build ({found}) than the trace ({expected})")]
    OtherSidecar {
        /// The sidecar.
        path: PathBuf,
        /// Identity in the file.
        found: String,
        /// Identity in the manifest.
        expected: String,
    },
    /// A spill file has another version. Unlike damage, this ends the conversion: otherwise the
    /// whole file would be lost.
    #[error("{path}: {error}")]
    OtherVersion {
        /// The spill file.
        path: PathBuf,
        /// Both versions.
        error: SpillError,
    },
    /// The Parquet encoder failed.
    #[error("encoding rows: {0}")]
    Encode(#[from] parquet::errors::ParquetError),
    /// The columns would be larger than allowed.
    #[error("the columns would exceed the size limit of {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// A worker thread panicked.
    #[error("a worker thread failed: {0}")]
    Worker(String),
}

impl ConvertError {
    /// True if the reason is a full disk or a quota.
    pub fn no_space(&self) -> bool {
        let full = |e: &std::io::Error| {
            matches!(
                e.raw_os_error(),
                Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
            )
        };
        match self {
            ConvertError::Io { error, .. } => full(error),
            ConvertError::Encode(parquet::errors::ParquetError::External(inner)) => {
                inner.downcast_ref::<std::io::Error>().is_some_and(full)
            }
            _ => false,
        }
    }
}

pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ConvertError {
    let path = path.to_owned();
    move |error| ConvertError::Io { path, error }
}
