//! Stepping on one processor.
//!
//! A step takes two switches between recorder and thread. On one processor, each is a context
//! switch. On two, each wakes an idle processor, which takes at least twice the time (measured in a
//! virtual machine: 24 µs a step, 13 µs on one processor). So while a thread is stepped, it and the
//! recorder are bound to the processor that it ran on.
//!
//! The program must not notice. Stepping ends before system calls, so the thread cannot read its
//! affinity during that time. Another thread of the program could, so a thread is bound only if it
//! is the only one. It gets its former mask back before it runs on.

use std::mem::MaybeUninit;

type Mask = libc::cpu_set_t;

/// Mask of a thread; 0: the caller.
fn mask(thread: i32) -> Option<Mask> {
    let mut mask = MaybeUninit::<Mask>::zeroed();
    // SAFETY: the kernel writes at most as many bytes as the structure has; zeros are valid.
    (unsafe { libc::sched_getaffinity(thread, size_of::<Mask>(), mask.as_mut_ptr()) } == 0)
        .then(|| unsafe { mask.assume_init() })
}

fn bind(thread: i32, to: &Mask) -> bool {
    // SAFETY: the mask lives across the call.
    unsafe { libc::sched_setaffinity(thread, size_of::<Mask>(), to) == 0 }
}

/// True if two masks are the same.
fn same(a: &Mask, b: &Mask) -> bool {
    // SAFETY: the macro only compares.
    unsafe { libc::CPU_EQUAL(a, b) }
}

/// The recorder's own binding.
pub struct Recorder {
    /// Mask at the recorder's start. `None` if it is unknown; nothing is bound then.
    own: Option<Mask>,
    bound: Option<u32>,
}

/// A bound thread, which is released when dropped.
pub struct Bound {
    thread: i32,
    former: Mask,
    one: Mask,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // A change of the mask by other code since then stays.
        if mask(self.thread).is_some_and(|now| same(&now, &self.one)) {
            bind(self.thread, &self.former);
        }
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            own: mask(0),
            bound: None,
        }
    }
}

impl Recorder {
    /// Moves the calling thread to a processor and binds a stopped thread to the same one. If that
    /// is impossible, the result is `None`, and nothing is bound.
    pub fn join(&mut self, thread: i32, processor: u32) -> Option<Bound> {
        let own = self.own?;
        let at = processor as usize;
        let former = mask(thread)?;
        // SAFETY: the number is below the mask's size; the macros only read and write the mask.
        let one = unsafe {
            if at >= libc::CPU_SETSIZE as usize
                || !libc::CPU_ISSET(at, &former)
                || !libc::CPU_ISSET(at, &own)
            {
                self.leave();
                return None;
            }
            let mut one = MaybeUninit::<Mask>::zeroed().assume_init();
            libc::CPU_SET(at, &mut one);
            one
        };
        if self.bound != Some(processor) {
            if !bind(0, &one) {
                return None;
            }
            self.bound = Some(processor);
        }
        if !bind(thread, &one) {
            self.leave();
            return None;
        }
        Some(Bound {
            thread,
            former,
            one,
        })
    }

    /// Lets the calling thread run on any processor again.
    pub fn leave(&mut self) {
        if let (Some(own), Some(_)) = (self.own, self.bound.take()) {
            bind(0, &own);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_bound_and_get_their_masks_back() {
        let before = mask(0).unwrap();
        let (word, say) = std::sync::mpsc::channel::<()>();
        let (name, told) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            // SAFETY: no arguments.
            name.send(unsafe { libc::gettid() }).unwrap();
            let _ = say.recv();
        });
        let thread = told.recv().unwrap();
        let its = mask(thread).unwrap();
        // SAFETY: no arguments.
        let here = unsafe { libc::sched_getcpu() } as u32;
        // SAFETY: the macro only reads the mask.
        let count = |m: &Mask| unsafe { libc::CPU_COUNT(m) };
        let mut recorder = Recorder::default();
        for _ in 0..2 {
            let bound = recorder.join(thread, here).unwrap();
            assert_eq!(
                (count(&mask(0).unwrap()), count(&mask(thread).unwrap())),
                (1, 1)
            );
            drop(bound);
            assert!(same(&mask(thread).unwrap(), &its));
        }
        // A mask that other code has set since then stays.
        let bound = recorder.join(thread, here).unwrap();
        assert!(bind(thread, &its));
        drop(bound);
        assert!(same(&mask(thread).unwrap(), &its));
        assert!(recorder.join(thread, 100_000).is_none());
        drop(recorder);
        assert!(same(&mask(0).unwrap(), &before));
        drop(word);
        other.join().unwrap();
    }
}
