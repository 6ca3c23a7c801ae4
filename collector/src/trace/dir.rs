//! `manifest.json` and the trace folder around it.
//!
//! The manifest is written when the recording starts (`running`), whenever a module is loaded, and
//! at the end. Each time, a temporary file is renamed over it, so that readers always find a
//! complete one. The folder holds a small reserve file while the recording runs, so that the last
//! manifest can be written on a full disk. Folders have mode 0700 and files 0600, since a trace
//! shows command lines, paths and addresses.

use crate::machine::identity;
use crate::util::clock;
use crate::util::folder::make_dir;
use mgz_annotations_schema::manifest::{
    ANNOTATIONS_DIR, CALIBRATION_DIR, COUNTS, MANIFEST, Manifest, Module, ModuleLoad, SAMPLES_DIR,
    SPILL_DIR, TRACE_FORMAT, TRACE_VERSION, WATCH, WINDOWS,
};
use mgz_annotations_schema::{RowsIn, SamplingUnit, TraceMode, TraceState, TriggerEvent};
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Reserves room for the last manifest.
const RESERVE_FILE: &str = ".reserve";
const RESERVE_BYTES: usize = 64 << 10;

/// Why a folder cannot hold a trace.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The path exists already.
    #[error(
        "{path}: it exists already; choose another folder with -o, or give --force to replace the trace in it"
    )]
    Exists {
        /// The folder.
        path: String,
    },
    /// The path exists and is no trace of ours.
    #[error(
        "{path}: it exists and holds no mgz trace ({why}), so it is not replaced; choose another folder with -o"
    )]
    Foreign {
        /// The folder.
        path: String,
        /// The finding that rules out a trace.
        why: &'static str,
    },
    /// Another recorder is writing there.
    #[error("{0}")]
    Busy(String),
    /// It cannot be made or written to.
    #[error("{path}: the trace folder cannot be written: {error}; choose another with -o")]
    Unwritable {
        /// The folder.
        path: String,
        /// The system's reason.
        error: io::Error,
    },
}

/// A trace folder that is being written.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Checks if a trace may be written to `path`, without changing anything.
    pub fn check(path: &Path, force: bool) -> Result<(), FolderError> {
        let shown = path.display().to_string();
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(FolderError::Unwritable { path: shown, error }),
            Ok(_) if !force => Err(FolderError::Exists { path: shown }),
            Ok(meta) if !meta.is_dir() => Err(FolderError::Foreign {
                path: shown,
                why: "it is not a folder",
            }),
            Ok(_) => match foreign(path) {
                None => Ok(()),
                Some(why) => Err(FolderError::Foreign { path: shown, why }),
            },
        }
    }

    /// Makes the folder. With `force`, removes the files that a trace of ours has left in it.
    pub fn create(path: &Path, force: bool) -> Result<Folder, FolderError> {
        Self::check(path, force)?;
        let unwritable = |error| FolderError::Unwritable {
            path: path.display().to_string(),
            error,
        };
        if path.exists() {
            let _lock = Folder::existing(path).lock().map_err(FolderError::Busy)?;
            clear(path).map_err(unwritable)?;
        }
        make_dir(path).map_err(unwritable)?;
        let folder = Folder {
            path: path.to_owned(),
        };
        let made = [SPILL_DIR, SAMPLES_DIR, ANNOTATIONS_DIR]
            .iter()
            .try_for_each(|dir| make_dir(&path.join(dir)));
        made.and_then(|()| folder.reserve()).map_err(|error| {
            folder.remove();
            unwritable(error)
        })?;
        Ok(folder)
    }

    /// A folder that holds a trace already.
    pub fn existing(path: &Path) -> Folder {
        Folder {
            path: path.to_owned(),
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other recorders away until the result is dropped. The error is a sentence.
    pub fn lock(&self) -> Result<std::fs::File, String> {
        use std::os::fd::AsRawFd;
        let shown = self.path.display();
        let dir = std::fs::File::open(&self.path)
            .map_err(|e| format!("{shown}: cannot be opened: {e}"))?;
        // SAFETY: an integer call on our own descriptor.
        match unsafe { libc::flock(dir.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(dir),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Err(format!(
                "{shown}: another mgz-record is writing this trace; wait for it to end, or choose another folder"
            )),
            // Some file systems have no locks, so other recorders cannot be excluded.
            _ => Ok(dir),
        }
    }

    fn reserve(&self) -> io::Result<()> {
        // Not zeros, which some file systems do not store.
        let noise: Vec<u8> = (0..RESERVE_BYTES as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        create_private(&self.path.join(RESERVE_FILE))?.write_all(&noise)
    }

    /// Gives the reserved room free; the next manifest is the last.
    pub fn release_reserve(&self) {
        let _ = std::fs::remove_file(self.path.join(RESERVE_FILE));
    }

    /// Replaces the manifest.
    pub fn write(&self, manifest: &Manifest) -> io::Result<()> {
        let temporary = self.path.join(format!("{MANIFEST}.tmp"));
        let text = serde_json::to_vec_pretty(manifest)?;
        let written = create_private(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.write_all(b"\n")
        });
        let done = written.and_then(|()| std::fs::rename(&temporary, self.path.join(MANIFEST)));
        if done.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        done
    }

    /// Removes everything that this type made, for a recording that could not start. Other files
    /// stay.
    pub fn remove(&self) {
        let _ = clear(&self.path);
        let _ = std::fs::remove_dir(&self.path);
    }

    /// Copies a sidecar into the trace; returns its path relative to the folder. One that is there
    /// already is kept.
    pub fn add_sidecar(&self, sidecar: &Path, id_hex: &str) -> io::Result<String> {
        let relative = format!("{ANNOTATIONS_DIR}/{id_hex}.mgza");
        let target = self.path.join(&relative);
        if !target.exists() {
            let temporary = target.with_extension("mgza.tmp");
            let copied = std::fs::File::open(sidecar)
                .and_then(|mut from| io::copy(&mut from, &mut create_private(&temporary)?));
            if let Err(error) = copied.and_then(|_| std::fs::rename(&temporary, &target)) {
                let _ = std::fs::remove_file(&temporary);
                return Err(error);
            }
        }
        Ok(relative)
    }

    /// Removes the spill files.
    pub fn remove_spill(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(self.path.join(SPILL_DIR)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Makes a file that only the user can read, empty.
fn create_private(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Why a folder is not a trace of ours.
fn foreign(path: &Path) -> Option<&'static str> {
    let Ok(text) = std::fs::read(path.join(MANIFEST)) else {
        return Some("no manifest.json");
    };
    match serde_json::from_slice::<serde_json::Value>(&text) {
        Ok(value) if value.get("format").and_then(|f| f.as_str()) == Some(TRACE_FORMAT) => None,
        _ => Some("its manifest.json is not ours"),
    }
}

/// Removes the files of a trace from a folder, and nothing else. The manifest goes last.
fn clear(path: &Path) -> io::Result<()> {
    let calibration = path.join(CALIBRATION_DIR);
    if foreign(&calibration).is_none() {
        clear(&calibration)?;
        // Files that are not ours stay in it.
        let _ = std::fs::remove_dir(&calibration);
    }
    for dir in [SPILL_DIR, SAMPLES_DIR, ANNOTATIONS_DIR] {
        match std::fs::remove_dir_all(path.join(dir)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    for file in [
        RESERVE_FILE,
        crate::objects::OBJECTS,
        "objects.parquet.tmp",
        WATCH,
        "watch.parquet.tmp",
        WINDOWS,
        "windows.parquet.tmp",
        COUNTS,
        "counts.parquet.tmp",
        "manifest.json.tmp",
        MANIFEST,
    ] {
        match std::fs::remove_file(path.join(file)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Reads the manifest of a trace.
pub fn read_manifest(trace: &Path) -> anyhow::Result<Manifest> {
    use anyhow::Context;
    let path = trace.join(MANIFEST);
    let text = std::fs::read(&path).with_context(|| {
        format!(
            "{}: cannot be read; give the folder of a trace",
            path.display()
        )
    })?;
    let value: serde_json::Value = serde_json::from_slice(&text).with_context(|| {
        format!(
            "{}: not valid JSON; the trace cannot be used",
            path.display()
        )
    })?;
    anyhow::ensure!(
        value.get("format").and_then(|f| f.as_str()) == Some(TRACE_FORMAT),
        "{}: not the manifest of an mgz trace",
        path.display()
    );
    let version = value
        .get("version")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0);
    anyhow::ensure!(
        version == u64::from(TRACE_VERSION),
        "{}: trace format version {version} is not supported (this mgz-record knows version {TRACE_VERSION}); use the release that recorded it",
        path.display()
    );
    serde_json::from_value(value).with_context(|| format!("{}: damaged manifest", path.display()))
}

/// A manifest for a recording that starts now.
pub fn begin_manifest(command: Vec<String>, mode: TraceMode, period: u64, window: u64) -> Manifest {
    let rank = crate::options::ranks::own_rank();
    let (event, trigger) = match mode {
        TraceMode::Ring => (Some(TriggerEvent::Records), "records"),
        TraceMode::Burst => (Some(TriggerEvent::CpuTime), "cpu time"),
        TraceMode::Full
        | TraceMode::Count
        | TraceMode::Watch
        | TraceMode::Samples
        | TraceMode::Snapshot
        | TraceMode::Unknown(_) => (None, ""),
    };
    Manifest {
        format: TRACE_FORMAT.into(),
        version: TRACE_VERSION,
        tool: concat!("mgz-record ", env!("CARGO_PKG_VERSION")).into(),
        command,
        started: clock::utc_now(),
        host: identity::host(),
        rank: rank.map(|r| r.rank),
        world_size: rank.and_then(|r| r.world_size),
        local_rank: rank.and_then(|r| r.local_rank),
        cpu: identity::cpu(),
        caches: crate::machine::caches::caches(),
        memory_costs: crate::machine::memory_costs::kept(),
        backend: "soft".into(),
        trigger: trigger.into(),
        trigger_event: event,
        mode,
        unit: SamplingUnit::Records,
        period,
        window,
        state: TraceState::Running,
        data: RowsIn::Spill,
        ..Manifest::default()
    }
}

/// Enters a module that a process has loaded. Returns whether it is new to the manifest.
pub fn add_module(manifest: &mut Manifest, module: Module, load: ModuleLoad) -> bool {
    let same = |m: &&mut Module| {
        m.sidecar_id == module.sidecar_id && m.bias == module.bias && m.path == module.path
    };
    match manifest.modules.iter_mut().find(same) {
        Some(known) => {
            known.loads.push(load);
            false
        }
        None => {
            manifest.modules.push(Module {
                loads: vec![load],
                ..module
            });
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_is_private_and_replaced_only_if_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let folder = Folder::create(&path, false).unwrap();
        let manifest = begin_manifest(vec!["a".into()], TraceMode::Full, 0, 0);
        folder.write(&manifest).unwrap();
        folder.release_reserve();
        assert_eq!(
            (
                mode(&path),
                mode(&path.join(MANIFEST)),
                mode(&path.join(SPILL_DIR))
            ),
            (0o700, 0o600, 0o700)
        );
        assert_eq!(read_manifest(&path).unwrap().command, ["a"]);
        std::fs::write(path.join("notes.txt"), "mine").unwrap();
        std::fs::write(path.join("samples/part-00000.parquet"), "old").unwrap();
        std::fs::write(path.join(WINDOWS), "old").unwrap();
        assert!(matches!(
            Folder::create(&path, false),
            Err(FolderError::Exists { .. })
        ));
        Folder::create(&path, true).unwrap();
        assert!(!path.join("samples/part-00000.parquet").exists());
        assert!(!path.join(WINDOWS).exists(), "it is another recording's");
        assert_eq!(
            std::fs::read(path.join("notes.txt")).unwrap(),
            b"mine",
            "other files stay"
        );
        assert!(
            matches!(
                Folder::create(&path, true),
                Err(FolderError::Foreign { .. })
            ),
            "without a manifest it is not ours"
        );
    }

    #[test]
    fn foreign_folders_files_and_links_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let check =
            |path: &Path| matches!(Folder::create(path, true), Err(FolderError::Foreign { .. }));
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        assert!(check(&empty));
        std::fs::write(empty.join(MANIFEST), "{\"format\": \"other\"}").unwrap();
        assert!(check(&empty));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(check(&file));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        assert!(check(&link));
    }

    #[test]
    fn modules_are_entered_once_per_place() {
        let mut manifest = Manifest::default();
        let module = |bias| Module {
            path: "/bin/a".into(),
            sidecar_id: "00".into(),
            bias,
            ..Module::default()
        };
        let load = |process| ModuleLoad {
            process,
            begin_ns: 5,
        };
        assert!(add_module(&mut manifest, module(0), load(1)));
        assert!(!add_module(&mut manifest, module(0), load(2)));
        assert!(add_module(&mut manifest, module(0x1000), load(1)));
        assert_eq!(manifest.modules.len(), 2);
        assert_eq!(manifest.modules[0].loads, [load(1), load(2)]);
    }

    #[test]
    fn a_sidecar_is_copied_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("t"), false).unwrap();
        let sidecar = dir.path().join("a.mgza");
        std::fs::write(&sidecar, "MGZA").unwrap();
        let relative = folder.add_sidecar(&sidecar, "abcd").unwrap();
        assert_eq!(relative, "annotations/abcd.mgza");
        assert_eq!(
            std::fs::read(folder.path().join(&relative)).unwrap(),
            b"MGZA"
        );
        assert_eq!(mode(&folder.path().join(&relative)), 0o600);
        assert_eq!(folder.add_sidecar(&sidecar, "abcd").unwrap(), relative);
    }
}
