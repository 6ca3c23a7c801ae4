//! Kinds of backends, phases and data objects, by their names in files of a trace.

use crate::named::named;
use mgz_abi::module_note::FLAVOUR_PT;

named! {
    /// The source of a trace's records. Imports of other tools' traces have the name of the tool.
    TraceBackend {
        /// Probes that write to memory.
        Soft = "soft",
        /// Probes that the processor records with Intel PT.
        Pt = "pt",
        /// Imports: memory samples of perf.data, without loads of Intel PT.
        Perf = "perf",
        /// Hardware watchpoints (mode `watch`).
        Watchpoints = "watchpoints",
    }
}

named! {
    /// The backend that can record an instrumented file.
    ProbeFlavour {
        /// Probes write to memory.
        Soft = "soft",
        /// Probes execute `ptwrite`.
        Pt = "pt",
    }
}

impl ProbeFlavour {
    /// The flavour of a module's note.
    pub fn of_note(flavour: u32) -> ProbeFlavour {
        match flavour {
            FLAVOUR_PT => ProbeFlavour::Pt,
            _ => ProbeFlavour::Soft,
        }
    }
}

named! {
    /// Reason why a phase began.
    PhaseBegin {
        /// A marker in the program.
        Marker = "marker",
        /// The program entered a function (`--from-function`).
        FromFunction = "from-function",
        /// The run reached a time or a number of loads (`--start-after`).
        StartAfter = "start-after",
        /// The program started.
        Start = "start",
    }
}

named! {
    /// Kind of a data object.
    ObjectKind {
        /// A variable of a module.
        Global = "global",
        /// Memory that the program took with `brk`, or blocks of an allocation site.
        Heap = "heap",
        /// A thread's stack.
        Stack = "stack",
        /// Thread-local storage of a process's first thread.
        ThreadLocal = "thread-local",
        /// A file, or a part of a module that no variable names.
        File = "file",
        /// Other memory.
        Anonymous = "anonymous",
        /// No object is known.
        NotKnown = "unknown",
    }
}

impl ObjectKind {
    /// The kind of a mapping, by its path as in `/proc/PID/maps` or perf.data.
    pub fn of_mapping(path: &str) -> ObjectKind {
        match path {
            "[heap]" => ObjectKind::Heap,
            path if path.starts_with("[stack") => ObjectKind::Stack,
            path if path.starts_with('/') && !path.starts_with("//anon") => ObjectKind::File,
            _ => ObjectKind::Anonymous,
        }
    }
}
