//! Completeness of a trace, and the folder that has its rows.

use crate::named::named;

named! {
    /// Completeness of a recording.
    TraceState {
        /// The program runs, or the recorder was killed.
        Running = "running",
        /// Nothing is missing.
        Complete = "complete",
        /// The recorder was stopped or died.
        Interrupted = "interrupted",
        /// Something is missing; see `problems` of the manifest.
        Partial = "partial",
    }
}

named! {
    /// Location of a trace's rows. None is named in traces that have them in `samples/`.
    RowsIn {
        /// `samples/`; a folder `spill/` is to be ignored.
        Samples = "samples",
        /// `spill/`; a folder `samples/` is incomplete and to be ignored.
        Spill = "spill",
        /// The table of watched reuses (mode `watch`).
        Watch = "watch",
    }
}

named! {
    /// Recording of the callers of windows. None is named in other modes, in imports without call
    /// chains, and in traces of earlier releases.
    PathRecording {
        /// Callers were recorded.
        Recorded = "recorded",
        /// The user switched it off (`--no-stacks`).
        Off = "off",
    }
}

named! {
    /// Reason why a program that ran was not recorded.
    NotRecorded {
        /// It is 32-bit; neither it nor programs that it starts can load the runtime.
        Bits32 = "32-bit",
        /// It has no instrumented code.
        Plain = "not instrumented",
        /// It gains rights, so the loader preloads nothing into it and into programs that it starts.
        Privileged = "privileged",
    }
}
