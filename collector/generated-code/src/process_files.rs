//! The files in which a process names its code, and the process's memory.
//!
//! A perf map may lie in a mount namespace of the process, and its name has the process id that the
//! process sees. Files of another user, and files older than the process, are not trusted: anyone
//! may write to `/tmp`, and process ids are reused.

use crate::gdb_interface::{DESCRIPTOR, ProcessMemory};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Maximum size of a perf map, bytes. Source: Chosen; ten million lines.
const MAX_MAP_BYTES: u64 = 1 << 30;
/// Tolerance for the age of files: the kernel's start time of a process has the resolution of its
/// tick. Source: Chosen.
const START_TOLERANCE: Duration = Duration::from_secs(2);

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// Facts about a process from its `/proc` folder, available while it lives.
#[derive(Debug)]
pub struct ProcessFacts {
    /// The process id that the process sees.
    pub inner_id: u32,
    /// User id of the process.
    pub user: u32,
    /// Time of its start.
    pub started: SystemTime,
    /// Its `/tmp`, if that differs from this process's.
    pub own_tmp: Option<File>,
    /// Its working folder.
    pub folder: PathBuf,
}

impl ProcessFacts {
    /// Reads the facts about a process.
    pub fn read(process: u32) -> io::Result<ProcessFacts> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_ascii_whitespace())
        };
        let inner_id = field("NSpid:").and_then(|f| f.last()?.parse().ok());
        let user = field("Uid:").and_then(|mut f| f.next()?.parse().ok());
        let tmp = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(format!("/proc/{process}/root/tmp"));
        let same =
            |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let own_tmp = tmp.ok().filter(|tmp| {
            let (Ok(theirs), Ok(ours)) = (tmp.metadata(), std::fs::metadata("/tmp")) else {
                return false;
            };
            !same(&theirs, &ours)
        });
        Ok(ProcessFacts {
            inner_id: inner_id.unwrap_or(process),
            // SAFETY: the call cannot fail and touches no memory.
            user: user.unwrap_or_else(|| unsafe { libc::geteuid() }),
            started: started(process).unwrap_or_else(SystemTime::now),
            own_tmp,
            folder: std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default(),
        })
    }

    /// Path of the perf map of the process, which may be written only at its end.
    pub fn perf_map_path(&self) -> PathBuf {
        let name = format!("perf-{}.map", self.inner_id);
        match &self.own_tmp {
            Some(tmp) => PathBuf::from(format!("/proc/self/fd/{}/{name}", tmp.as_raw_fd())),
            None => Path::new("/tmp").join(name),
        }
    }

    /// Opens a file of the process, if it can be trusted.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        // Opening must not block on a pipe, nor follow a link.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(path)?;
        let facts = file.metadata()?;
        // SAFETY: the call cannot fail and touches no memory.
        let own = unsafe { libc::geteuid() };
        let is_owned = [0, own, self.user].contains(&facts.uid());
        let is_new = (facts.modified()?).checked_add(START_TOLERANCE) >= Some(self.started);
        match facts.is_file() && is_owned && is_new {
            true => Ok(file),
            false => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// Time of a process's start.
fn started(process: u32) -> Option<SystemTime> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may contain anything, ends at the last parenthesis.
    let ticks: u64 = (stat.rsplit_once(')')?.1.split_ascii_whitespace())
        .nth(19)?
        .parse()
        .ok()?;
    let kernel = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = (kernel
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?)
    .trim()
    .parse()
    .ok()?;
    // SAFETY: the call touches no memory.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    let since_boot = Duration::from_secs(ticks.checked_div(per_second)?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(boot) + since_boot)
}

/// The content of a perf map, up to the maximum size.
pub fn read_map(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_MAP_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// The memory of another process.
pub struct OtherProcess(pub u32);

impl ProcessMemory for OtherProcess {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            let local = libc::iovec {
                iov_base: rest.as_mut_ptr().cast(),
                iov_len: rest.len(),
            };
            let remote = libc::iovec {
                iov_base: (address as usize).wrapping_add(done) as *mut libc::c_void,
                iov_len: rest.len(),
            };
            // SAFETY: the local range is `rest`; the kernel checks the other process's.
            let read =
                unsafe { libc::process_vm_readv(self.0 as libc::pid_t, &local, 1, &remote, 1, 0) };
            match usize::try_from(read) {
                Ok(1..) => done += read as usize,
                _ => return false,
            }
        }
        true
    }
}

/// The link-time address of GDB's list in a file, and that of the file's first loaded page with its
/// offset in the file.
pub fn descriptor_of(path: &Path) -> Option<(u64, u64, u64)> {
    let file = File::open(path).ok()?;
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return None;
    }
    // SAFETY: the mapping is private and read-only. If another process shortens the file meanwhile,
    // access faults, as with every mapped input.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    let parsed = object::File::parse(&bytes[..]).ok()?;
    let symbol = (parsed.dynamic_symbols().chain(parsed.symbols()))
        .find(|s| s.is_definition() && s.name_bytes() == Ok(DESCRIPTOR.as_bytes()))?;
    let first = parsed.segments().min_by_key(|s| s.address())?;
    let page = |value: u64| value & !(PAGE_BYTES - 1);
    Some((
        symbol.address(),
        page(first.address()),
        page(first.file_range().0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let facts = ProcessFacts::read(std::process::id()).unwrap();
        assert!(facts.own_tmp.is_none());
        assert!(facts.started <= SystemTime::now() + START_TOLERANCE);
        assert!(facts.started > SystemTime::now() - Duration::from_secs(24 * 3600));
        let map = format!("/tmp/perf-{}.map", facts.inner_id);
        assert_eq!(facts.perf_map_path(), Path::new(&map));
    }

    #[test]
    fn files_from_before_the_process_are_not_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        std::fs::write(&path, "").unwrap();
        let mut facts = ProcessFacts::read(std::process::id()).unwrap();
        assert!(facts.open(&path).is_ok());
        facts.started = SystemTime::now() + Duration::from_secs(60);
        assert!(facts.open(&path).is_err());
        facts.started = SystemTime::UNIX_EPOCH;
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(facts.open(&link).is_err());
        assert!(facts.open(folder.path()).is_err());
    }

    #[test]
    fn memory_is_read_by_address() {
        let word = 0x1234_5678_9abc_def0_u64;
        let mut bytes = [0; 8];
        let own = OtherProcess(std::process::id());
        assert!(own.read(&raw const word as u64, &mut bytes));
        assert_eq!(u64::from_le_bytes(bytes), word);
        assert!(!own.read(8, &mut bytes));
    }
}
