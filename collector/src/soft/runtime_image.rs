//! The runtime's shared object, and how a child process reaches it.
//!
//! The bytes are part of `mgz-record`. They are put into a sealed memfd, which the dynamic loader
//! of the child opens as `/proc/RECORDER/fd/N`: no file has to be installed or cleaned up, the path
//! works for every descendant as long as the recorder lives, and no descriptor leaks into the
//! child.

use crate::objects::heap::hooks::{Hook, with_hooks};
use crate::util::memfd::{fd_path, memfd, seal};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;

/// The shared object, as `build.rs` made it.
pub static RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmgz_runtime.so"));

/// The shared object with the functions of the C library's allocator, for `--heap`.
pub static RUNTIME_HEAP: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libmgz_runtime_heap.so"));

/// The runtime in a memfd, kept open for as long as children may start.
pub struct RuntimeImage {
    fd: OwnedFd,
}

impl RuntimeImage {
    /// Writes the embedded shared object into a new memfd and seals it. `heap`: selects the variant
    /// that logs heap blocks, with wrappers for these functions.
    pub fn new(heap: Option<&[Hook]>) -> io::Result<Self> {
        let mut file = File::from(memfd(c"mgz-runtime")?);
        match heap {
            None => file.write_all(RUNTIME)?,
            Some([]) => file.write_all(RUNTIME_HEAP)?,
            Some(hooks) => {
                file.write_all(&with_hooks(RUNTIME_HEAP, hooks).map_err(io::Error::other)?)?
            }
        }
        seal(
            &file,
            libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL,
        )?;
        Ok(RuntimeImage { fd: file.into() })
    }

    /// Path for `LD_PRELOAD`.
    pub fn path(&self) -> String {
        fd_path(&self.fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_a_shared_object_that_nobody_can_change() {
        let image = RuntimeImage::new(None).unwrap();
        let path = image.path();
        assert_eq!(path.len(), crate::util::memfd::PATH_LENGTH);
        assert_eq!(std::fs::read(&path).unwrap(), RUNTIME);
        assert_eq!(&RUNTIME[..4], b"\x7fELF");
        assert_eq!(RUNTIME[16], 3, "ET_DYN");
        assert!(
            std::fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|mut f| f.write_all(b"x"))
                .is_err()
        );
    }

    #[test]
    fn the_image_needs_no_library_and_leaves_nothing_undefined() {
        for image in [RUNTIME, RUNTIME_HEAP] {
            leaves_nothing_undefined(image);
        }
    }

    /// Weak symbols, and calls of its own functions by name, could bind to a definition in the
    /// program.
    #[test]
    fn the_image_names_no_symbol_that_a_program_could_define() {
        use object::{Object, ObjectSymbol};
        /// Names that may be undefined, with the reason.
        const ALLOWED: [&str; 0] = [];
        for image in [RUNTIME, RUNTIME_HEAP] {
            let file = object::File::parse(image).unwrap();
            let undefined: Vec<_> = file
                .dynamic_symbols()
                .filter(|s| s.is_undefined() && s.name() != Ok(""))
                .filter_map(|s| s.name().ok())
                .filter(|name| !ALLOWED.contains(name))
                .collect();
            assert!(undefined.is_empty(), "{undefined:?}");
            let named: Vec<_> = file
                .dynamic_relocations()
                .unwrap()
                .filter(|(_, r)| matches!(r.target(), object::RelocationTarget::Symbol(_)))
                .collect();
            assert!(named.is_empty(), "{named:?}");
        }
    }

    #[test]
    fn only_the_image_for_heap_blocks_replaces_the_allocator() {
        use object::{Object, ObjectSymbol};
        let exports = |image: &[u8]| {
            object::File::parse(image)
                .unwrap()
                .dynamic_symbols()
                .any(|s| s.is_definition() && s.name() == Ok("malloc"))
        };
        assert!(exports(RUNTIME_HEAP) && !exports(RUNTIME));
    }

    fn leaves_nothing_undefined(image: &[u8]) {
        use object::{Object, ObjectSymbol};
        let file = object::File::parse(image).unwrap();
        let undefined: Vec<_> = file
            .dynamic_symbols()
            .filter(|s| {
                s.is_undefined() && !s.is_weak() && !s.name_bytes().unwrap_or_default().is_empty()
            })
            .map(|s| s.name().unwrap_or("?").to_owned())
            .collect();
        assert!(undefined.is_empty(), "{undefined:?}");
    }
}
