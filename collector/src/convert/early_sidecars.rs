//! Sidecars that are read while the program runs, for the conversion behind its end.
//!
//! A thread of the lowest priority reads them, and only where the recorder has more than one
//! processor. So the program loses nothing.

use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::sidecar::Sidecar;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Sidecars by their identity in hex.
pub(crate) type SidecarsById = BTreeMap<String, Sidecar>;

/// See the module's text.
#[derive(Default)]
pub(crate) struct EarlySidecars {
    /// The thread, once it has something to read.
    reader: Option<ThreadPool>,
    asked: Vec<String>,
    /// None once they were taken.
    read: Arc<Mutex<Option<SidecarsById>>>,
}

impl EarlySidecars {
    /// Has a sidecar read.
    pub(crate) fn read(&mut self, id: &str, path: PathBuf) {
        let processors = std::thread::available_parallelism();
        self.read_beside(processors.map_or(1, usize::from), id, path);
    }

    /// As [`EarlySidecars::read`], with so many processors.
    fn read_beside(&mut self, processors: usize, id: &str, path: PathBuf) {
        if processors < 2 || self.asked.iter().any(|asked| asked == id) {
            return;
        }
        self.asked.push(id.to_owned());
        if self.reader.is_none() {
            *locked(&self.read) = Some(SidecarsById::default());
            // Reading has parallel parts: they stay on this one thread.
            let one = ThreadPoolBuilder::new()
                .num_threads(1)
                .start_handler(|_| yield_to_others());
            self.reader = one.build().ok();
        }
        let (read, id) = (self.read.clone(), id.to_owned());
        let task = move || {
            // Nobody waits for it any more.
            if locked(&read).is_none() {
                return;
            }
            // Errors show when the file is read again.
            if let Ok(sidecar) = Sidecar::read(&path)
                && let Some(read) = locked(&read).as_mut()
            {
                read.insert(id, sidecar);
            }
        };
        if let Some(reader) = &self.reader {
            reader.spawn(task);
        }
    }

    /// The sidecars read so far. The others are left to the caller.
    pub(crate) fn take(&mut self) -> SidecarsById {
        locked(&self.read).take().unwrap_or_default()
    }
}

/// The calling thread gets only time that no other thread wants.
fn yield_to_others() {
    // SAFETY: the structure is plain data, and the call changes the calling thread alone.
    unsafe {
        let nothing: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Asks for a sidecar, a damaged one and one that is missing. Returns what was read.
    fn read(processors: usize) -> SidecarsById {
        let folder = tempfile::tempdir().unwrap();
        let (whole, damaged) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&whole, Sidecar::default().to_bytes().unwrap()).unwrap();
        std::fs::write(&damaged, "no sidecar").unwrap();
        let mut early = EarlySidecars::default();
        early.read_beside(processors, "damaged", damaged);
        early.read_beside(processors, "missing", folder.path().join("c"));
        early.read_beside(processors, "whole", whole.clone());
        early.read_beside(processors, "whole", whole);
        let has_read = |early: &EarlySidecars| {
            let read = locked(&early.read);
            read.as_ref().is_some_and(|read| !read.is_empty())
        };
        let begin = Instant::now();
        while processors > 1 && !has_read(&early) && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let taken = early.take();
        assert!(early.take().is_empty());
        taken
    }

    #[test]
    fn whole_sidecars_are_read_where_a_processor_is_idle() {
        assert_eq!(read(2).into_keys().collect::<Vec<_>>(), ["whole"]);
        assert!(read(1).is_empty());
    }
}
