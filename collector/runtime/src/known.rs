//! What a thread's hooks know of where original addresses go on (see `hooks`).
//!
//! Two tables of entries `(key, value)`. The *near* one has one entry for each hash, and leads from original addresses to their clones. The *far* one has two, and
//! remembers more: other keys than addresses spare most calls of code without a clone their looks into the address map. Hooks look into both, by instructions of
//! their own.
//!
//! What makes this hard: only the thread itself reads and writes values, but a signal may end that anywhere, and another thread may be forgetting all keys.

/// Entries of the near table.
pub const NEAR: usize = 128;
/// Bytes of the far table.
pub const FAR_BYTES: usize = 16 * 1024;
/// Entries of the far table for keys of one hash: with one, addresses that a loop calls in turns would often throw each other out.
const WAYS: usize = 2;
/// Hashes of the far table.
pub const SETS: usize = FAR_BYTES / 16 / WAYS;
/// Multiplicative hash of the low half: the uppermost bits of the product. (Functions begin at multiples of 16 and lie far apart, so that low bits alone make pairs
/// of them throw each other out at every call.)
pub const HASH: u32 = 0x9e37_79b1;

/// A number below `places`, a power of two.
const fn hash(key: u64, places: usize) -> usize {
    ((key as u32).wrapping_mul(HASH) >> (32 - places.trailing_zeros())) as usize
}

/// The key of an entry that holds nothing, by the hash that keys of this entry have: it has another one, so that nobody finds it. (Zero has the first: were zero
/// there, a call through a null pointer would find whatever value the entry has had.)
const fn nothing(place: usize) -> u64 {
    (place == 0) as u64
}

const _: () = assert!(hash(0, NEAR) == 0 && hash(0, SETS) == 0 && hash(1, NEAR) != 0 && hash(1, SETS) != 0);

/// A thread's tables. Before their first use all is to be forgotten.
#[derive(Clone, Copy)]
pub struct Known {
    near: usize,
    far: usize,
}

impl Known {
    /// # Safety
    ///
    /// There are [`NEAR`] entries of 16 bytes at `near`, and [`FAR_BYTES`] at `far`, for nothing else and as long as this is used.
    pub const unsafe fn at(near: usize, far: usize) -> Known {
        Known { near, far }
    }

    /// Forgets all. The tables' thread may be looking something up meanwhile: whoever has found a key goes on to its value, so that values stay. (What is forgotten for a
    /// library that is unmapped, nobody looks for who may call it.)
    pub fn forget(self) {
        for (table, places, ways) in [(self.near, NEAR, 1), (self.far, SETS, WAYS)] {
            for n in 0..places * ways {
                // SAFETY: an entry of the table, see [`Known::at`]. Its thread reads and writes it by whole words, too.
                unsafe { ((table + 16 * n) as *mut u64).write_volatile(nothing(n / ways)) };
            }
        }
    }

    /// Notes where an original address goes on.
    pub fn note_near(self, original: u64, clone: u64) {
        let place = hash(original, NEAR);
        put((self.near + 16 * place) as *mut u64, place, original, clone);
    }

    fn way(self, place: usize, way: usize) -> *mut u64 {
        (self.far + 16 * (WAYS * place + way)) as *mut u64
    }

    /// The value of a key in the far table.
    pub fn recall(self, key: u64) -> Option<u64> {
        let place = hash(key, SETS);
        // SAFETY: entries of this thread's table.
        (0..WAYS).map(|way| self.way(place, way)).find_map(|entry| unsafe { (entry.read_volatile() == key).then(|| entry.add(1).read_volatile()) })
    }

    /// Adds a key to the far table. One of two makes room, in turns. What is not noted now stays where it is: another thread may be forgetting it, and would miss
    /// what moves.
    pub fn note(self, key: u64, value: u64, turn: &mut u32) {
        let place = hash(key, SETS);
        // SAFETY: entries of this thread's table.
        let free = (0..WAYS).find(|&way| unsafe { self.way(place, way).read_volatile() == nothing(place) });
        *turn = turn.wrapping_add(1);
        put(self.way(place, free.unwrap_or(*turn as usize % WAYS)), place, key, value);
    }
}

/// Writes an entry of one of this thread's tables, for keys of this hash.
fn put(entry: *mut u64, place: usize, key: u64, value: u64) {
    // SAFETY: the callers' tables. The key is written last, since a signal may end this anywhere.
    unsafe {
        entry.write_volatile(nothing(place));
        entry.add(1).write_volatile(value);
        entry.write_volatile(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// As a new thread has them.
    fn tables() -> Known {
        let at = |bytes: usize| vec![0u64; bytes / 8].leak().as_ptr() as usize;
        // SAFETY: memory of that size, which nobody else has.
        let known = unsafe { Known::at(at(16 * NEAR), at(FAR_BYTES)) };
        known.forget();
        known
    }

    /// What hooks find.
    fn found(known: Known, key: u64) -> Option<u64> {
        let entry = (known.near + 16 * hash(key, NEAR)) as *const u64;
        // SAFETY: an entry of the near table.
        let near = unsafe { (entry.read() == key).then(|| entry.add(1).read()) };
        near.or_else(|| known.recall(key))
    }

    /// Two addresses for each hash.
    fn addresses() -> [Vec<u64>; 2] {
        let mut sets = vec![Vec::new(); SETS];
        let mut at = 0x40_0000;
        while sets.iter().any(|s| s.len() < 2) {
            sets[hash(at, SETS)].push(at);
            at += 16;
        }
        [0, 1].map(|n| sets.iter().map(|s| s[n]).collect())
    }

    #[test]
    fn nobody_finds_what_is_forgotten() {
        let known = tables();
        let all = addresses().concat();
        for &original in &all {
            known.note_near(original, original + 1);
            known.note(original, original + 1, &mut 0);
        }
        assert!(all.iter().all(|&original| found(known, original) == Some(original + 1)), "there is room for two of each hash");
        known.forget();
        assert_eq!(found(known, 0), None, "a null pointer leads nowhere");
        assert!(all.iter().all(|&original| found(known, original).is_none()));
    }

    /// Of a library that is closed, while another thread notes addresses that it does not have.
    #[test]
    fn what_is_forgotten_does_not_come_back() {
        const ROUNDS: u32 = 2000;
        let known = tables();
        let [closed, open] = addresses();
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait = |turn: &AtomicU32, round| (0u32..).take_while(|_| turn.load(Ordering::Acquire) != round).for_each(|n| if n % 4096 == 4095 { std::thread::yield_now() });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait(&begun, round);
                    known.forget();
                    ended.store(round, Ordering::Release);
                }
            });
            let mut back = 0;
            for round in 1..=ROUNDS {
                known.forget();
                closed.iter().for_each(|&original| known.note(original, 1, &mut 0));
                begun.store(round, Ordering::Release);
                // Somewhere the two meet.
                (0..round % 256).for_each(|_| std::hint::spin_loop());
                open.iter().rev().for_each(|&original| known.note(original, 2, &mut 0));
                wait(&ended, round);
                back += closed.iter().filter(|&&original| known.recall(original).is_some()).count();
            }
            assert_eq!(back, 0);
        });
    }
}
