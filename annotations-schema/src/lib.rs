//! Schemas that the parts of mgz share: the annotation sidecar (`.mgza`), the trace folder's
//! manifest and columns, spill files, and the expansion of records to rows. The binary interface of
//! probes is `mgz-abi`.
//!
//! The layout follows from three constraints: a sidecar of a large program has millions of sites,
//! is read by four programs, and one of them (the runtime) runs inside a foreign process without a
//! standard library. Hence a short binary [prelude](mgz_abi::module_note::Prelude), a JSON header
//! that describes every column, and plain columns behind it.
//!
//! Guarantees: readers never panic on any bytes; every offset, length and index is checked before
//! use; an unknown version is refused. No analysis happens here.

mod atomic_replace;
pub mod coverage;
pub mod expand;
pub mod lock;
pub mod manifest;
pub mod memory_costs;
mod named;
mod program_change;
mod program_status;
mod recorded_kinds;
mod remedy;
pub mod ring;
pub mod row_stream;
mod sample_population;
pub mod shell;
pub mod sidecar;
pub mod sources;
pub mod spill;
mod tell;
mod trace_mode;
mod trace_state;
mod trigger;
pub mod window_loads;

pub use crate::atomic_replace::replace;
pub use crate::sidecar::write::{Beside, Content, Encoded, EncodedTables, Runs, SidecarParts};
pub use mgz_abi::leb128;
pub use program_change::ProgramChange;
pub use program_status::ProgramStatus;
pub use recorded_kinds::{ObjectKind, PhaseBegin, ProbeFlavour, TraceBackend};
pub use remedy::NamedRemedy;
pub use sample_population::SamplePopulation;
pub use sidecar::{Sidecar, SidecarError};
pub use trace_mode::TraceMode;
pub use trace_state::{NotRecorded, PathRecording, RowsIn, TraceState};
pub use trigger::{SamplingUnit, TriggerEvent};
