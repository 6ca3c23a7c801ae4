//! Errors of reading a trace.

use mgz_annotations_schema::manifest::TRACE_VERSION;

/// Why a trace cannot be analysed at all. Each names the file, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The path does not exist or is not a folder.
    #[error("{path}: not a trace folder ({cause}); give the folder that mgz-record wrote with -o")]
    NoFolder {
        /// The given path.
        path: String,
        /// The error.
        cause: String,
    },
    /// `manifest.json` is missing or cannot be read.
    #[error(
        "{path}: cannot read the manifest ({cause}); give the folder that mgz-record wrote with -o, or record again"
    )]
    NoManifest {
        /// The manifest.
        path: String,
        /// The system's reason.
        cause: String,
    },
    /// `manifest.json` is damaged.
    #[error("{path}: damaged manifest ({cause}); record again")]
    BadManifest {
        /// The manifest.
        path: String,
        /// The error.
        cause: String,
    },
    /// Another format version.
    #[error(
        "{path}: trace format version {found} is not supported (this mgz-analyze reads version {TRACE_VERSION}); use the mgz-analyze of the release that recorded it, or record again"
    )]
    Version {
        /// The manifest.
        path: String,
        /// Version in the file.
        found: u32,
    },
    /// A sidecar is missing, damaged or of another build.
    #[error(
        "{path}: {cause}; functions, lines and sites cannot be named without it: put back the file that mgz-record had copied there, record again, or give --no-annotations to analyse addresses only"
    )]
    Sidecar {
        /// The sidecar.
        path: String,
        /// The error.
        cause: String,
    },
    /// The spill folder cannot be read.
    #[error("{path}: cannot read the spill files ({cause})")]
    Spill {
        /// The folder.
        path: String,
        /// The error.
        cause: String,
    },
    /// There are no rows to read.
    #[error("{path}: cannot list the sample files ({cause}); record again")]
    NoSamples {
        /// The folder.
        path: String,
        /// The system's reason.
        cause: String,
    },
}
