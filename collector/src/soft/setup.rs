//! Preparations before a program is recorded: signals, shared memory, the runtime's image.

use crate::objects::heap::HeapCollector;
use crate::pairs::WINDOWS_PER_WATCH;
use crate::paths::FIRST_BYTES;
use crate::soft::outcome::{DriverError, recorder_error};
use crate::soft::run_options::{Mode, RunOptions};
use crate::soft::runtime_image::RuntimeImage;
use crate::soft::shared_memory::{MAX_WINDOW, Settings, SharedMemory};
use crate::target::signals::{FileSizesLifted, Signals};
use crate::target::spawn;
use mgz_annotations_schema::manifest::ANNOTATIONS_DIR;
use std::io;
use std::process::Child;

/// Everything that a recording needs. Fields are dropped in order, so signal settings are restored
/// last.
pub struct Setup {
    /// Reads the log of heap blocks, if one is kept.
    pub heap: Option<HeapCollector>,
    /// The runtime.
    pub image: RuntimeImage,
    /// The memory that it shares with the recorder.
    pub shared: SharedMemory,
    /// The recorder's signal settings during the run.
    pub signals: Signals,
}

impl Setup {
    /// Makes all parts.
    pub fn new(options: &RunOptions) -> Result<Setup, DriverError> {
        let settings = settings(options)?;
        // This comes first: otherwise a limit on file sizes would be a deadly signal and not an
        // error.
        let signals = Signals::install().map_err(recorder_error("setting up signals"))?;
        let lifted =
            FileSizesLifted::new().map_err(recorder_error("lifting the limit on file sizes"))?;
        let shared = SharedMemory::new(settings).map_err(recorder_error(
            "making the shared memory (is `ulimit -f` very low?)",
        ))?;
        let image = RuntimeImage::new(options.heap.as_ref().map(|heap| &heap.1[..])).map_err(
            recorder_error("preparing the runtime (is `ulimit -f` very low?)"),
        )?;
        let heap = options
            .heap
            .as_ref()
            .map(|heap| HeapCollector::new(heap.0, matches!(options.mode, Mode::Full)))
            .transpose()
            .map_err(recorder_error("making the log of heap blocks"))?;
        if let Some(heap) = &heap {
            shared.set_heap(&heap.path());
        }
        if options.of_windows.stacks && settings.windows() {
            shared.want_stacks(FIRST_BYTES);
        }
        if options.of_windows.reuses && matches!(options.mode, Mode::Burst) {
            shared.want_reuses(WINDOWS_PER_WATCH);
        }
        crate::soft::phases::tell(&options.phases, &shared);
        drop(lifted);
        let sidecars = options.spill_dir.with_file_name(ANNOTATIONS_DIR);
        if let Ok(folder) = std::fs::canonicalize(sidecars) {
            shared.set_sidecars(&folder);
        }
        Ok(Setup {
            heap,
            image,
            shared,
            signals,
        })
    }
}

fn settings(options: &RunOptions) -> Result<Settings, DriverError> {
    match options.mode {
        Mode::Off => Ok(Settings::off()),
        Mode::Full => Ok(Settings::full()),
        Mode::Count => Ok(Settings::count()),
        Mode::Burst => options
            .trigger
            .and_then(|trigger| Settings::burst(options.window, trigger, options.signal))
            .ok_or_else(|| DriverError::Own {
                what: format!("a window of {} records", options.window),
                error: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("a window has 1 to {MAX_WINDOW} records"),
                ),
            }),
        Mode::Ring => {
            Settings::ring(options.period, options.window).ok_or_else(|| DriverError::Own {
                what: format!(
                    "a window of {} records in a period of {}",
                    options.window, options.period
                ),
                error: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "a window has 1 to {MAX_WINDOW} records and is not longer than the period"
                    ),
                ),
            })
        }
    }
}

/// Starts the program with the runtime in it.
pub fn start_program(options: &RunOptions, setup: &Setup) -> Result<Child, DriverError> {
    if options.no_aslr && !spawn::can_turn_aslr_off() {
        return Err(recorder_error(
            "address randomization cannot be turned off here (a container's seccomp filter may forbid `personality`)",
        )(io::ErrorKind::PermissionDenied.into()));
    }
    let program = options.program.display().to_string();
    let preload = spawn::Preload {
        runtime: setup.image.path(),
        before: options.before_runtime.clone(),
        at: options.heap_place,
    };
    let started = spawn::spawn(
        &options.program,
        &options.argv,
        options.no_aslr,
        &preload,
        &setup.shared.path(),
        setup.signals.inherited(),
    );
    started.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => DriverError::NotFound { program },
        // These errors come from fork.
        Some(libc::EAGAIN | libc::ENOMEM) => recorder_error(format!("starting {program}"))(error),
        _ => DriverError::CannotExecute { program, error },
    })
}
