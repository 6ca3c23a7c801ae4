//! Numbers from Python's buffers (NumPy arrays, `array.array`, memory views) without NumPy.
//!
//! The buffer protocol is in Python's limited interface only since 3.11, but its functions and the
//! layout of a buffer are the same in every earlier 3.x, so they are declared here.

use crate::failed_by;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `Py_buffer` (PEP 3118).
#[repr(C)]
struct Buffer {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut Buffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut Buffer);
}

/// `PyBUF_FORMAT | PyBUF_ND`: contiguous in C's order.
const PLAIN: c_int = 0x4 | 0x8;

/// A buffer of integers whose memory is valid as long as this value lives.
pub(crate) struct Numbers {
    view: Box<Buffer>,
}

// SAFETY: the memory is valid while the view is held; it is only read, through pointers, by copying
// single numbers.
unsafe impl Send for Numbers {}
// SAFETY: as above.
unsafe impl Sync for Numbers {}

impl Numbers {
    /// The buffer of an object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Numbers> {
        let mut view = Box::new(Buffer {
            buf: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: the object is alive, the view is writable, and the interpreter's lock is held.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, PLAIN) } != 0 {
            let _ = PyErr::take(object.py());
            return Err(PyTypeError::new_err(WANTED));
        }
        let numbers = Numbers { view };
        let format = if numbers.view.format.is_null() {
            c"B"
        } else {
            // SAFETY: a format is a C string that lives as long as the view.
            unsafe { CStr::from_ptr(numbers.view.format) }
        };
        let kind = format.to_bytes();
        let kind = kind.strip_prefix(b"@").unwrap_or(kind);
        let kind = kind.strip_prefix(b"=").unwrap_or(kind);
        let kind = kind.strip_prefix(b"<").unwrap_or(kind);
        let is_whole = matches!(kind, [b'q' | b'Q' | b'l' | b'L' | b'n' | b'N' | b'P']);
        if numbers.view.ndim != 1 || !is_whole || numbers.view.itemsize != 8 {
            return Err(PyTypeError::new_err(WANTED));
        }
        Ok(numbers)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or(0) / 8
    }

    /// Passes all values to `each`, in order, some thousands at a time.
    pub(crate) fn visit(&self, mut each: impl FnMut(&[u64])) {
        const TOGETHER: usize = 1 << 14;
        let mut copy = vec![0_u64; TOGETHER];
        let from = self.view.buf.cast::<u64>();
        let mut done = 0;
        while done < self.len() {
            let count = TOGETHER.min(self.len() - done);
            // SAFETY: the range is inside the buffer, which is held, and `copy` has room for it. No
            // alignment is assumed. Numbers that other Python threads write at the same time are
            // seen as before or after.
            unsafe {
                let from = from.add(done).cast::<u8>();
                let to = copy.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(from, to, count * 8);
            }
            each(&copy[..count]);
            done += count;
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: the view was filled by PyObject_GetBuffer and is released once, under the
            // interpreter's lock.
            unsafe { PyBuffer_Release(&mut *self.view) }
        });
    }
}

const WANTED: &str = "addresses are a one-dimensional, contiguous array of 64-bit whole numbers; numpy.ascontiguousarray(x, dtype=\"uint64\") makes one";

/// Log2 of a block size, with the same checks as the commands.
pub(crate) fn block_shift(block: u64) -> PyResult<u32> {
    let checked = mgz_analyzer::commands::block_size(&block.to_string()).map_err(failed_by)?;
    Ok(checked.trailing_zeros())
}
