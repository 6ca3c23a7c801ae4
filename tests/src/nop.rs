//! Runs the PT flavour on a CPU without `ptwrite`, from a copy in which each `ptwrite` is replaced
//! by a NOP of the same length.

use crate::tools;
use anyhow::{Context, Result, bail};
use mgz_annotations_schema::Sidecar;
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Tells whether this CPU (and this kernel or hypervisor) executes `ptwrite`, by running one.
pub fn executes_ptwrite() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let probe = || -> Result<bool> {
            let dir = tempfile::tempdir()?;
            let (source, program) = (dir.path().join("p.S"), dir.path().join("p"));
            std::fs::write(&source, ".globl _start\n_start: .byte 0xf3, 0x48, 0x0f, 0xae, 0xe0\n xor %edi, %edi\n mov $231, %eax\n syscall\n")?;
            let built = Command::new("gcc").args(["-nostdlib", "-static", "-o"]).arg(&program).arg(&source).output()?;
            if !built.status.success() {
                bail!("{}", String::from_utf8_lossy(&built.stderr));
            }
            Ok(Command::new(&program).status()?.success())
        };
        probe().unwrap_or(false)
    })
}

/// Replaces the `ptwrite`s of a PT-flavoured file in place, at the addresses in its sidecar.
/// Returns their number.
pub fn replace(path: &Path) -> Result<usize> {
    let sidecar = Sidecar::read(&PathBuf::from(format!("{}.mgza", path.display())))
        .with_context(|| format!("{}.mgza", path.display()))?;
    let mut bytes = std::fs::read(path)?;
    let segments: Vec<(u64, u64, u64)> = {
        let header = object::elf::FileHeader64::<object::Endianness>::parse(&*bytes)?;
        let e = header.endian()?;
        let load = |p: &&object::elf::ProgramHeader64<object::Endianness>| {
            p.p_type(e) == object::elf::PT_LOAD
        };
        header
            .program_headers(e, &*bytes)?
            .iter()
            .filter(load)
            .map(|p| (p.p_vaddr(e), p.p_filesz(e), p.p_offset(e)))
            .collect()
    };
    for ptwrite in &sidecar.ptwrites {
        let (vaddr, _, offset) = segments
            .iter()
            .copied()
            .find(|s| (s.0..s.0 + s.1).contains(&ptwrite.ip))
            .context("a ptwrite outside of the file")?;
        let at = (ptwrite.ip - vaddr + offset) as usize;
        match bytes[at..] {
            [0xf3, 0x48..=0x4f, 0x0f, 0xae, modrm, ..] if modrm & 0xf8 == 0xe0 => {
                bytes[at..at + 5].copy_from_slice(&[0x0f, 0x1f, 0x44, 0, 0])
            }
            [0xf3, 0x0f, 0xae, modrm, ..] if modrm & 0xf8 == 0xe0 => {
                bytes[at..at + 4].copy_from_slice(&[0x0f, 0x1f, 0x40, 0])
            }
            _ => bail!("{}: no ptwrite at {:#x}", path.display(), ptwrite.ip),
        }
    }
    tools::write_program(path, &bytes)?;
    Ok(sidecar.ptwrites.len())
}
