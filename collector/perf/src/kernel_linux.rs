//! The real kernel.

use crate::attr::Attr;
use crate::kernel::{Area, Control, Counted, EventId, Kernel};
use crate::mmap_ring;
use crate::open::{
    self, IOC_DISABLE, IOC_ENABLE, IOC_PERIOD, IOC_SET_FILTER, IOC_SET_OUTPUT, open_perf_event,
    syscall_result,
};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The kernel that this process runs on.
#[derive(Default)]
pub struct Linux {
    events: Vec<OwnedFd>,
    /// Descriptors of events that have a ring and whose tasks still exist.
    polled: Vec<RawFd>,
    mapped: bool,
}

impl Linux {
    fn fd(&self, event: EventId) -> io::Result<RawFd> {
        self.events
            .get(event.0)
            .map(AsRawFd::as_raw_fd)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Kernel for Linux {
    fn read(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        Ok(std::fs::read_dir(path)?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }

    fn file_system(&self, path: &str) -> io::Result<i64> {
        let path = CString::new(path)?;
        let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: a zero-terminated text and room for the answer, both of which live across the
        // call.
        syscall_result(unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, so the kernel has filled it in.
        let about = unsafe { about.assume_init() };
        // (The field is unsigned in musl.)
        #[allow(clippy::unnecessary_cast)]
        Ok(about.f_type as i64)
    }

    fn open(
        &mut self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        group: Option<EventId>,
    ) -> io::Result<EventId> {
        let group = group.map_or(Ok(-1), |leader| self.fd(leader))?;
        self.events.push(open_perf_event(attr, pid, cpu, group)?);
        Ok(EventId(self.events.len() - 1))
    }

    fn id(&mut self, event: EventId) -> io::Result<u64> {
        open::id(&self.fd(event)?)
    }

    fn count(&mut self, event: EventId) -> io::Result<Counted> {
        let fd = self.fd(event)?;
        let mut words = [0u64; 3];
        // SAFETY: the words live across the call, which writes at most their length.
        let read =
            unsafe { libc::read(fd, words.as_mut_ptr().cast(), std::mem::size_of_val(&words)) };
        if read < 0 {
            return Err(io::Error::last_os_error());
        }
        if read as usize != std::mem::size_of_val(&words) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [value, enabled_ns, running_ns] = words;
        Ok(Counted {
            value,
            enabled_ns,
            running_ns,
        })
    }

    fn control(&mut self, event: EventId, control: &Control) -> io::Result<()> {
        let fd = self.fd(event)?;
        match control {
            // SAFETY: integer arguments.
            Control::Enable => syscall_result(unsafe { libc::ioctl(fd, IOC_ENABLE, 0) }),
            // SAFETY: integer arguments.
            Control::Disable => syscall_result(unsafe { libc::ioctl(fd, IOC_DISABLE, 0) }),
            Control::Output(ring) => {
                let ring = self.fd(*ring)?;
                // SAFETY: integer arguments.
                syscall_result(unsafe { libc::ioctl(fd, IOC_SET_OUTPUT, ring) })
            }
            Control::Filter(text) => {
                let text = CString::new(text.as_str())?;
                // SAFETY: a zero-terminated text that lives across the call.
                syscall_result(unsafe { libc::ioctl(fd, IOC_SET_FILTER, text.as_ptr()) })
            }
            Control::Period(period) => {
                // SAFETY: the kernel reads eight bytes.
                syscall_result(unsafe { libc::ioctl(fd, IOC_PERIOD, std::ptr::from_ref(period)) })
            }
        }
    }

    fn map(&mut self, event: EventId, len: usize, offset: u64, writable: bool) -> io::Result<Area> {
        let fd = self.fd(event)?;
        let area = mmap_ring::map(&fd, len, offset, writable)?;
        if offset == 0 {
            self.polled.push(fd);
            self.mapped = true;
        }
        Ok(area)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let mut list: Vec<_> = self
            .polled
            .iter()
            .map(|&fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let milliseconds = timeout.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: the list lives across the call.
        let ready =
            unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(true)
            } else {
                Err(error)
            };
        }
        // Once its tasks are gone, an event is always ready.
        let gone =
            |p: &libc::pollfd| p.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
        self.polled = list.iter().filter(|p| !gone(p)).map(|p| p.fd).collect();
        Ok(!self.polled.is_empty() || !self.mapped)
    }

    fn close_all(&mut self) {
        self.polled.clear();
        self.mapped = false;
        self.events.clear();
    }

    fn page(&self) -> usize {
        // SAFETY: no memory is involved.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    }

    fn tsc(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads a counter that every x86-64 processor has.
        return unsafe { std::arch::x86_64::_rdtsc() }.max(1);
        #[cfg(not(target_arch = "x86_64"))]
        1
    }
}
