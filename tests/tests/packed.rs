//! Packed and encrypted executables, whose file content differs from the code that runs. They
//! behave like the original or are declined.

use mgz_tests::forms::{self, FormOutcome};
use mgz_tests::programs::{self, Variant};
use mgz_tests::tools::{self, LIMIT};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::fs::Permissions;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIXED: Variant = Variant {
    clang: false,
    opt: "2",
    pie: false,
};
const PLAIN: Variant = Variant::O2;

const PAGE_SIZE: u64 = mgz_abi::shared_memory::PAGE_SIZE as u64;
/// Bytes of the file header and of a program header.
const HEADERS: (usize, usize) = (64, 56);

/// Keystream of the encryption that `unpack.c`, `sealed.c` and `inmemory.c` reverse.
#[derive(Clone)]
struct Key(u32);

impl Key {
    fn apply(&mut self, bytes: &mut [u8]) {
        for b in bytes {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *b ^= (self.0 >> 24) as u8;
        }
    }
}

/// File layout of a packer.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes after the program headers.
    mark: [u8; 4],
    /// The segment with the stub is writable.
    writable: bool,
    /// Extra bytes of this segment in memory beyond those in the file.
    room: u64,
}

/// The layout that UPX uses.
const UPX: Shape = Shape {
    mark: *b"UPX!",
    writable: false,
    room: 0,
};
/// The same without UPX's name.
const NAMELESS: Shape = Shape {
    mark: *b"\x91\x13\xc7\x5e",
    ..UPX
};
/// One segment with code and additional memory.
const IN_PLACE: Shape = Shape {
    writable: true,
    room: 1 << 20,
    ..NAMELESS
};

fn executable(path: &Path, bytes: &[u8]) {
    std::fs::write(path, []).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    tools::write_program(path, bytes).unwrap();
}

/// A loadable segment: address, content, size in memory, flags.
type Segment = (u64, Vec<u8>, u64, u32);

fn segments(file: &[u8]) -> Vec<Segment> {
    let header = elf::FileHeader64::<object::Endianness>::parse(file).unwrap();
    let e = header.endian().unwrap();
    let loads = header.program_headers(e, file).unwrap().iter();
    loads
        .filter(|p| p.p_type(e) == elf::PT_LOAD)
        .map(|p| {
            let bytes = p.data(e, file).unwrap();
            (p.p_vaddr(e), bytes.to_vec(), p.p_memsz(e), p.p_flags(e).0)
        })
        .collect()
}

/// The bytes of a section in the file.
fn section(file: &[u8], name: &str) -> Range<usize> {
    let header = elf::FileHeader64::<object::Endianness>::parse(file).unwrap();
    let e = header.endian().unwrap();
    let sections = header.sections(e, file).unwrap();
    let (_, found) = sections.section_by_name(e, name.as_bytes()).unwrap();
    let start = found.sh_offset(e) as usize;
    start..start + found.sh_size(e) as usize
}

/// Packs a static executable at fixed addresses.
fn pack(program: &Path, shape: Shape, dir: &Path) -> PathBuf {
    let file = std::fs::read(program).unwrap();
    let all = segments(&file);
    let base = all[0].0;
    let end = all.iter().map(|s| s.0 + s.2).max().unwrap();
    let high = end.next_multiple_of(PAGE_SIZE) + (1 << 16);
    let long = u64::to_le_bytes;
    let count = 3;
    let mut packed = vec![0; HEADERS.0 + count * HEADERS.1];
    packed.extend_from_slice(&[0; 4]);
    packed.extend_from_slice(&shape.mark);
    packed.extend_from_slice(&[0; 16]);
    let mut key = Key(1);
    for (vaddr, bytes, memsz, flags) in &all {
        for word in [*vaddr, bytes.len() as u64, *memsz, u64::from(*flags)] {
            packed.extend_from_slice(&long(word));
        }
        let mut bytes = bytes.clone();
        key.apply(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        packed.extend_from_slice(&bytes);
    }
    packed.extend_from_slice(&[0; 32]);
    packed.resize(packed.len().next_multiple_of(64), 0);
    let entry = high + packed.len() as u64;
    packed.extend_from_slice(&stub(entry, high, shape, dir));

    let len = packed.len() as u64;
    packed[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    packed[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    packed[24..32].copy_from_slice(&long(entry));
    packed[32..40].copy_from_slice(&long(HEADERS.0 as u64));
    packed[52..58].copy_from_slice(&[64, 0, 56, 0, count as u8, 0]);
    let write = if shape.writable { 2 } else { 0 };
    let headers = [
        // Memory for the unpacked content, so that the heap begins at the same address.
        [1 | 6 << 32, 0, base, base, PAGE_SIZE, end - base, PAGE_SIZE],
        [
            1 | (5 | write) << 32,
            0,
            high,
            high,
            len,
            len + shape.room,
            PAGE_SIZE,
        ],
        [0x6474_e551 | 6 << 32, 0, 0, 0, 0, 0, 16],
    ];
    let bytes: Vec<u8> = headers.into_iter().flatten().flat_map(long).collect();
    packed[HEADERS.0..HEADERS.0 + bytes.len()].copy_from_slice(&bytes);
    let path = dir.join("packed");
    executable(&path, &packed);
    path
}

/// The stub's machine code for this address.
fn stub(at: u64, image: u64, shape: Shape, dir: &Path) -> Vec<u8> {
    let out = dir.join("stub");
    let script = dir.join("stub.ld");
    let text = format!(
        "SECTIONS {{ . = {at:#x}; .text : {{ *(.text.first) *(.text*) *(.rodata*) }} /DISCARD/ : {{ *(*) }} }}"
    );
    std::fs::write(&script, text).unwrap();
    let mark: String = shape
        .mark
        .iter()
        .map(|b| format!("\\x{b:02x}\"\""))
        .collect();
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-O2",
        "-ffreestanding",
        "-fno-pie",
        "-no-pie",
        "-nostdlib",
        "-static",
    ])
    .args([
        "-fno-stack-protector",
        "-fno-asynchronous-unwind-tables",
        "-fcf-protection=none",
    ])
    .args(["-fno-tree-loop-distribute-patterns", "-w"])
    .arg(format!("-DIMAGE={image:#x}"))
    .arg(format!("-DMARK=((const unsigned char *)\"{mark}\")"))
    .args(["-Wl,--oformat=binary", "-Wl,--build-id=none"])
    .arg(format!("-Wl,-T,{}", script.display()))
    .arg("-o")
    .arg(&out)
    .arg(programs::source("unpack"));
    tools::succeed(&mut gcc, LIMIT).unwrap();
    std::fs::read(out).unwrap()
}

/// Checks that each form is declined for this reason.
fn declined(program: &Path, reason: &str) {
    for (form, outcome) in forms::run_all(program, &[], None, |_, _| ()).unwrap() {
        assert!(
            matches!(&outcome, FormOutcome::Declined(why) if why.contains(reason) && why.contains("npack")),
            "{form}: {outcome:?}"
        );
    }
}

fn packed_in_shape(shape: Shape, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = programs::build("hash", FIXED, &["-static"], dir.path()).unwrap() else {
        return;
    };
    let packed = pack(&program, shape, dir.path());
    let expected = tools::succeed(&mut Command::new(&program), LIMIT).unwrap();
    let got = tools::succeed(&mut Command::new(&packed), LIMIT).unwrap();
    assert_eq!(got.stdout, expected.stdout, "the packed program runs");
    declined(&packed, reason);
}

#[test]
fn as_upx_packs() {
    packed_in_shape(UPX, "packed with UPX");
}

#[test]
fn without_a_name() {
    packed_in_shape(NAMELESS, "look like packed data");
}

#[test]
fn into_a_segment_that_is_written_and_run() {
    packed_in_shape(IN_PLACE, "room for code that is not in the file");
}

/// Uses UPX itself, if it is installed.
#[test]
fn by_upx() {
    if !tools::have("upx") {
        tools::skip("upx is not installed, so files that it makes were not tested");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = ["-static", "-Wl,-z,noseparate-code"];
    let Some(program) = programs::build("hash", FIXED, &options, dir.path()).unwrap() else {
        return;
    };
    let packed = dir.path().join("by_upx");
    let mut upx = Command::new("upx");
    upx.args(["-q", "-o"]).arg(&packed).arg(&program);
    tools::succeed(&mut upx, LIMIT).unwrap();
    declined(&packed, "packed with UPX");
}

/// The bytes in place of code are not code, or do not decode.
#[test]
fn encrypted_code() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = programs::build("switches", PLAIN, &["-static-pie"], dir.path()).unwrap()
    else {
        return;
    };
    let file = std::fs::read(&program).unwrap();
    let text = section(&file, ".text");
    let mut dense = file.clone();
    Key(1).apply(&mut dense[text.clone()]);
    let path = dir.path().join("dense");
    executable(&path, &dense);
    declined(&path, "is no code");
    let mut shifted = file;
    shifted[text].iter_mut().for_each(|b| *b ^= 0x5a);
    let path = dir.path().join("shifted");
    executable(&path, &shifted);
    declined(&path, "functions do not decode");
}

/// Only a few functions are encrypted; the others can be recorded.
#[test]
fn functions_that_are_decrypted_in_place() {
    for variant in [PLAIN, FIXED] {
        for extra in [&[][..], &["-O0"], &["-static"]] {
            let dir = tempfile::tempdir().unwrap();
            let Some(program) = programs::build("sealed", variant, extra, dir.path()).unwrap()
            else {
                return;
            };
            let mut file = std::fs::read(&program).unwrap();
            let sealed = section(&file, "sealed");
            Key(1).apply(&mut file[sealed]);
            tools::write_program(&program, &file).unwrap();
            let ran = tools::run_limited(&mut Command::new(&program), LIMIT).unwrap();
            assert_eq!(tools::code(&ran), 6, "the original runs");
            forms::all_same(&program, &[], None, |form, report| {
                let left = &report["functions"]["left"]["total"];
                assert!(
                    left.as_u64() >= Some(2),
                    "{variant} {extra:?} {form}: {report}"
                );
            });
        }
    }
}

#[test]
fn run_out_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(inside), Some(loader)) = (
        programs::build("hash", PLAIN, &[], dir.path()).unwrap(),
        programs::build("inmemory", PLAIN, &[], dir.path()).unwrap(),
    ) else {
        return;
    };
    let mut payload = std::fs::read(inside).unwrap();
    Key(1).apply(&mut payload);
    let len = payload.len() as u64;
    let file = [
        std::fs::read(&loader).unwrap(),
        payload,
        b"INMEMORY".to_vec(),
        len.to_le_bytes().to_vec(),
    ]
    .concat();
    executable(&loader, &file);
    forms::all_same(&loader, &[], None, |form, report| {
        assert!(report["payload"].is_object(), "{form}");
    });
}
