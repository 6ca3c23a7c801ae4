//! Programs that lock their memory (`mlockall`): the areas of counters are sparse mappings of many
//! GiB, which would all be allocated. Pages are locked when they are first used instead.

use crate::sys::errno::ENOSYS;
use crate::sys::libc_symbols::{fail, next};
use crate::sys::process;

/// `MCL_ONFAULT`.
const WHEN_USED: i32 = 4;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: i32) -> i32 {
    let Some(real) = next!(c"mlockall", unsafe extern "C" fn(i32) -> i32) else {
        return fail(ENOSYS);
    };
    let counts = process::header().is_some_and(|h| h.counters_at != 0);
    // SAFETY: the caller's argument; the program cannot observe how soon pages are locked.
    unsafe { real(if counts { flags | WHEN_USED } else { flags }) }
}
