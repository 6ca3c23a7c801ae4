//! Registers and memory of a stopped thread.

use crate::loads::RegisterState;
use std::os::unix::fs::FileExt;

/// Registers of a stopped thread; vector registers are read at their first use.
pub struct Registers {
    /// Thread ID.
    tid: i32,
    /// General purpose registers as the kernel gives them.
    pub user: libc::user_regs_struct,
    xstate: Option<Vec<u8>>,
}

fn check(result: libc::c_long) -> std::io::Result<()> {
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Registers {
    /// Reads the registers.
    pub fn read(tid: i32) -> std::io::Result<Registers> {
        // SAFETY: all-zero bytes are a valid value of this plain struct.
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: `user` is large enough for what PTRACE_GETREGS writes.
        check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut user) })?;
        Ok(Registers {
            tid,
            user,
            xstate: None,
        })
    }

    /// Combines earlier general purpose registers with the current vector registers.
    pub fn at(tid: i32, user: libc::user_regs_struct) -> Registers {
        Registers {
            tid,
            user,
            xstate: None,
        }
    }

    /// Writes the general purpose registers back.
    pub fn write(&self) -> std::io::Result<()> {
        // SAFETY: the kernel only reads the struct.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.tid, 0, &raw const self.user) })
    }

    fn xstate(&mut self) -> &[u8] {
        let tid = self.tid;
        self.xstate.get_or_insert_with(|| {
            let mut bytes = vec![0u8; 16 * 1024];
            let mut iov = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            // SAFETY: the vector describes `bytes`, which outlives the call.
            let result = unsafe {
                libc::ptrace(
                    libc::PTRACE_GETREGSET,
                    tid,
                    0x202usize, /* NT_X86_XSTATE */
                    &raw mut iov,
                )
            };
            assert!(
                result == 0,
                "the extended state of thread {tid}: {}",
                std::io::Error::last_os_error()
            );
            bytes
        })
    }

    /// Copies `N` bytes of a state component; unused components read as zero.
    fn component(&mut self, component: u32, at: usize, into: &mut [u8]) {
        // Offsets in the standard format come from CPUID leaf 0xd.
        let offset = if component < 2 {
            160
        } else {
            std::arch::x86_64::__cpuid_count(0xd, component).ebx as usize
        };
        let state = self.xstate();
        let in_use = u64::from_le_bytes(state[512..520].try_into().expect("eight bytes"));
        if in_use >> component & 1 == 1 {
            let from = offset + at;
            into.copy_from_slice(&state[from..from + into.len()]);
        }
    }
}

impl RegisterState for Registers {
    fn gpr(&self, number: usize) -> u64 {
        let u = &self.user;
        [
            u.rax, u.rcx, u.rdx, u.rbx, u.rsp, u.rbp, u.rsi, u.rdi, u.r8, u.r9, u.r10, u.r11,
            u.r12, u.r13, u.r14, u.r15,
        ][number]
    }

    fn segment_base(&self, gs: bool) -> u64 {
        if gs {
            self.user.gs_base
        } else {
            self.user.fs_base
        }
    }

    fn vector(&mut self, number: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        if number >= 16 {
            self.component(7, (number - 16) * 64, &mut bytes);
        } else {
            self.component(1, number * 16, &mut bytes[..16]);
            self.component(2, number * 16, &mut bytes[16..32]);
            self.component(6, number * 32, &mut bytes[32..]);
        }
        bytes
    }

    fn mask(&mut self, number: usize) -> u64 {
        let mut bytes = [0; 8];
        self.component(5, number * 8, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Memory of a traced process.
pub struct Memory(std::fs::File);

impl Memory {
    /// Opens it. It must be opened again after an exec.
    pub fn open(pid: i32) -> std::io::Result<Memory> {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map(Memory)
    }

    /// Reads up to `bytes.len()` bytes; returns the number of bytes read.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.0.read_at(bytes, address).unwrap_or(0)
    }

    /// Writes bytes, also to read-only pages.
    pub fn write(&self, address: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}
