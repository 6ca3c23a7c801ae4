//! The Python frames of the current thread, read without calling the interpreter.
//!
//! The recorder provides their location ([`FrameLayout`]). Only the thread itself changes its
//! frames, and it is in a handler here, so they are consistent as far as the interpreter has
//! written them. Each page is checked before it is read ([`Pages`]): pointers may be out of date
//! between two instructions of the interpreter. The recorder checks what the noted addresses lead
//! to.
//!
//! Only the list of threads is shared with other threads. It is read once per thread, and again if
//! the thread's own entry has changed. Each of its words is checked directly before it is read.

#[cfg(not(test))]
use crate::sys::syscall::is_readable;
use core::cell::Cell;
use mgz_abi::python_frames::{ENTRY_FRAME, FrameLayout, NO_FIELD, PythonFrame};
use mgz_abi::shared_memory::PAGE_SIZE;

/// Maximum number of interpreters searched in a process. Source: Chosen.
const MAX_INTERPRETERS: usize = 8;
/// Maximum number of threads searched in an interpreter. Source: Chosen.
const MAX_THREADS: usize = 256;
/// A thread that is not in the list searches again after this many windows, since it may never run
/// Python. Source: Chosen.
const WINDOWS_WITHOUT_LOOK: u64 = 64;
/// Frames by which C code enters the interpreter are skipped. At most this many frames of both
/// kinds are examined for each noted frame. Source: Chosen; each entry needs a frame of its own.
const STEPS_PER_FRAME: usize = 2;

/// The thread's `pthread_t`, which the C library keeps in the thread's own area.
pub fn own_thread_id() -> u64 {
    let id: u64;
    // SAFETY: each thread of a process that has a C library has this area, which begins with its own
    // address.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) id, options(nostack, readonly)) };
    id
}

/// Writes the frames of the current thread, innermost first, and returns their number. `id`: its
/// `pthread_t`; `state`: a word of the thread, zero at first.
pub fn thread_frames(
    layout: &FrameLayout,
    state: &Cell<u64>,
    id: u64,
    out: &mut [PythonFrame],
) -> usize {
    let mut pages = Pages::default();
    let Some(thread) = own_thread(layout, state, id, &mut pages) else {
        return 0;
    };
    let mut at = pages.word(thread, layout.frame);
    if layout.held_frame != NO_FIELD {
        at = at.and_then(|holder| pages.word(holder, layout.held_frame));
    }
    let mut noted = 0usize;
    for _ in 0..out.len() * STEPS_PER_FRAME {
        let Some(frame) = at.filter(|&frame| frame != 0) else {
            break;
        };
        match read_frame(layout, frame, &mut pages) {
            None => break,
            Some(Found::Entry) => {
                if let Some(last) = noted.checked_sub(1).and_then(|last| out.get_mut(last)) {
                    last.instruction |= ENTRY_FRAME;
                }
            }
            Some(Found::Frame(found)) => {
                let Some(place) = out.get_mut(noted) else {
                    break;
                };
                *place = found;
                noted += 1;
            }
        }
        at = pages.word(frame, layout.previous);
    }
    noted
}

/// A frame of the list.
enum Found {
    /// A frame of Python code.
    Frame(PythonFrame),
    /// C code enters the interpreter here: the frame found before is the first of that entry.
    Entry,
}

fn read_frame(layout: &FrameLayout, frame: u64, pages: &mut Pages) -> Option<Found> {
    if layout.owner != NO_FIELD && pages.byte(frame, layout.owner)? >= FrameLayout::ENTRY_OWNER {
        return Some(Found::Entry);
    }
    let code = pages.word(frame, layout.code)? & !FrameLayout::TAG_BITS;
    let instruction = match layout.instruction_bytes {
        4 => u64::from(pages.half(frame, layout.instruction)?),
        _ => pages.word(frame, layout.instruction)? & !ENTRY_FRAME,
    };
    // Versions without either field enter the interpreter for each frame.
    let is_entry = match layout.is_entry {
        NO_FIELD => layout.owner == NO_FIELD,
        offset => pages.byte(frame, offset)? != 0,
    };
    let entry = if is_entry { ENTRY_FRAME } else { 0 };
    Some(Found::Frame(PythonFrame {
        code,
        instruction: instruction | entry,
    }))
}

/// The thread's entry in the interpreter's list.
fn own_thread(layout: &FrameLayout, state: &Cell<u64>, id: u64, pages: &mut Pages) -> Option<u64> {
    match state.get() {
        0 => {}
        windows @ 1..=WINDOWS_WITHOUT_LOOK => {
            state.set(windows - 1);
            return None;
        }
        known if pages.word(known, layout.thread_id) == Some(id) => return Some(known),
        _ => {}
    }
    let found = listed_thread(layout, id, pages);
    state.set(found.unwrap_or(WINDOWS_WITHOUT_LOOK));
    found
}

fn listed_thread(layout: &FrameLayout, id: u64, pages: &mut Pages) -> Option<u64> {
    let mut interpreter = pages.foreign_word(layout.interpreters, 0)?;
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut thread = pages.foreign_word(interpreter, layout.threads)?;
        for _ in 0..MAX_THREADS {
            if thread == 0 {
                break;
            }
            if pages.foreign_word(thread, layout.thread_id)? == id {
                return Some(thread);
            }
            thread = pages.foreign_word(thread, layout.next_thread)?;
        }
        interpreter = pages.foreign_word(interpreter, layout.next_interpreter)?;
    }
    None
}

/// Pages that were found readable.
#[derive(Default)]
struct Pages {
    known: [u64; Pages::KNOWN],
    next: usize,
}

impl Pages {
    /// Frames lie close together, so a few remembered pages suffice.
    const KNOWN: usize = 4;

    /// The address of a field of `bytes` bytes, if it can be read.
    fn place(&mut self, base: u64, offset: u64, bytes: u64) -> Option<u64> {
        let at = base.checked_add(offset).filter(|at| at % bytes == 0)?;
        let page = at & !(PAGE_SIZE as u64 - 1);
        // (Nothing is mapped at 0, which stands for "none" here.)
        if page == 0 {
            return None;
        }
        if !self.known.contains(&page) {
            if !is_readable(at as usize, 1) {
                return None;
            }
            self.known[self.next % Self::KNOWN] = page;
            self.next += 1;
        }
        Some(at)
    }

    fn word(&mut self, base: u64, offset: u64) -> Option<u64> {
        let at = self.place(base, offset, 8)?;
        // SAFETY: aligned, so within one page, which was found readable. The thread's own frames
        // stay while it stands here.
        Some(unsafe { (at as *const u64).read_volatile() })
    }

    /// A word that another thread may free, so earlier checks of its page do not count.
    fn foreign_word(&mut self, base: u64, offset: u64) -> Option<u64> {
        self.known = [0; Pages::KNOWN];
        self.word(base, offset)
    }

    fn half(&mut self, base: u64, offset: u64) -> Option<u32> {
        let at = self.place(base, offset, 4)?;
        // SAFETY: as in `word`.
        Some(unsafe { (at as *const u32).read_volatile() })
    }

    fn byte(&mut self, base: u64, offset: u64) -> Option<u8> {
        let at = self.place(base, offset, 1)?;
        // SAFETY: as in `word`.
        Some(unsafe { (at as *const u8).read_volatile() })
    }
}

/// Tests make no system calls.
#[cfg(test)]
fn is_readable(at: usize, _bytes: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let ends = range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
        matches!(ends, Some((Ok(first), Ok(end))) if (first..end).contains(&at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interpreter: next, threads. Thread: next, id, frame. Frame: previous, code, instruction,
    /// owner.
    const LAYOUT: FrameLayout = FrameLayout {
        interpreters: 0,
        next_interpreter: 0,
        threads: 8,
        next_thread: 0,
        thread_id: 8,
        frame: 16,
        held_frame: NO_FIELD,
        previous: 0,
        code: 8,
        instruction: 16,
        instruction_bytes: 8,
        is_entry: NO_FIELD,
        owner: 24,
    };

    fn address(words: &[u64]) -> u64 {
        words.as_ptr() as u64
    }

    #[test]
    fn frames_of_the_own_thread_are_noted_with_the_entries() {
        const SHIM: u64 = FrameLayout::ENTRY_OWNER as u64;
        let outer_shim = [0, 0, 0, SHIM];
        let outer = [address(&outer_shim), 0x1000, 0x1040, 0];
        let shim = [address(&outer), 0, 0, SHIM];
        let caller = [address(&shim), 0x2000, 0x2020, 0];
        // The code's address is tagged.
        let inner = [address(&caller), 0x3001, 0x3010, 1];
        let own = [0, 77, address(&inner)];
        let other = [address(&own), 66, 0];
        let interpreter = [0, address(&other)];
        let first = [address(&interpreter)];
        let layout = FrameLayout {
            interpreters: address(&first),
            ..LAYOUT
        };
        let state = Cell::new(0);
        let mut out = [PythonFrame::default(); 8];
        for _ in 0..2 {
            assert_eq!(thread_frames(&layout, &state, 77, &mut out), 3);
            let found = out.map(|f| (f.code, f.instruction));
            assert_eq!(found[0], (0x3000, 0x3010));
            assert_eq!(found[1], (0x2000, 0x2020 | ENTRY_FRAME));
            assert_eq!(found[2], (0x1000, 0x1040 | ENTRY_FRAME));
            assert_eq!(state.get(), address(&own), "the second time it is known");
        }
        let mut few = [PythonFrame::default(); 2];
        assert_eq!(thread_frames(&layout, &state, 77, &mut few), 2);
    }

    #[test]
    fn addresses_that_lead_nowhere_end_the_list() {
        let inner = [0x10, 0x3000, 0x3010, 0];
        let own = [0, 77, address(&inner)];
        let interpreter = [0, address(&own)];
        let first = [address(&interpreter)];
        let layout = FrameLayout {
            interpreters: address(&first),
            ..LAYOUT
        };
        let mut out = [PythonFrame::default(); 8];
        assert_eq!(thread_frames(&layout, &Cell::new(0), 77, &mut out), 1);
        // A thread that is not in the list searches again later.
        let state = Cell::new(0);
        assert_eq!(thread_frames(&layout, &state, 78, &mut out), 0);
        assert_eq!(state.get(), WINDOWS_WITHOUT_LOOK);
        assert_eq!(thread_frames(&layout, &state, 77, &mut out), 0);
        state.set(0);
        assert_eq!(thread_frames(&layout, &state, 77, &mut out), 1);
        let nowhere = FrameLayout {
            interpreters: 8,
            ..layout
        };
        assert_eq!(thread_frames(&nowhere, &Cell::new(0), 77, &mut out), 0);
    }
}
