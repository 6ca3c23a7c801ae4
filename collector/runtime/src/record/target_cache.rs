//! Known targets of original addresses in the hooks of one thread (see `transfer_hooks`).
//!
//! Three tables of entries `(key, value)`. The *near* and the *far* table map original addresses to
//! their clones; hooks look into both with inline code. The near table has one entry per hash, the
//! others have two. The third table, which only [`KnownTargets::recall_fact`] reads, holds other
//! [`Fact`]s about addresses: they spare most calls of code without a clone a lookup in the address
//! map.
//!
//! The difficulty: only the thread itself reads and writes values, but a signal may interrupt that
//! anywhere, and another thread may clear all keys at the same time.

use core::cell::Cell;

/// Entries of the near table.
pub const NEAR_ENTRIES: usize = 128;
/// Bytes of the far table; the table of facts has the same size and is behind it.
const FAR_BYTES: usize = 16 * 1024;
/// Bytes of the far table and the table of facts together.
pub const BYTES: usize = 2 * FAR_BYTES;
/// Entries of the far table for keys of one hash: with one, addresses that a loop calls in turns
/// would often evict each other.
const WAYS: usize = 2;
/// Hashes of the far table.
pub const FAR_SETS: usize = FAR_BYTES / 16 / WAYS;
/// Multiplicative hash of the low half: the uppermost bits of the product. (Functions begin at
/// multiples of 16 and lie far apart, so with low bits alone, pairs of them would evict each other
/// at every call.)
pub const HASH: u32 = 0x9e37_79b1;

/// A number below `places`, a power of two.
const fn hash(key: u64, places: usize) -> usize {
    ((key as u32).wrapping_mul(HASH) >> (32 - places.trailing_zeros())) as usize
}

/// The key of an empty entry in place `place`. It has the hash of another place, so that no lookup
/// finds it. (Zero has hash 0, so it cannot mark an empty entry there: a call through a null
/// pointer would find the entry's old value.)
const fn nothing(place: usize) -> u64 {
    (place == 0) as u64
}

const _: () = assert!(
    hash(0, NEAR_ENTRIES) == 0
        && hash(0, FAR_SETS) == 0
        && hash(1, NEAR_ENTRIES) != 0
        && hash(1, FAR_SETS) != 0
);

/// Facts about an address other than the location of its clone. Each is a bit that is set in keys
/// of the table of facts, and in no address of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fact {
    /// A call's target that is outside of instrumented files.
    Outside = 1 << 63,
    /// A return address that must be replaced before code without a clone sees it; the value is the
    /// replacement.
    ReturnedTo = 1 << 62,
    /// An entry of a linkage table, which itself has no clone. (Its target is read each time, since
    /// binding may change it.)
    Linked = 1 << 61,
}

impl Fact {
    fn key(self, address: u64) -> u64 {
        self as u64 | address
    }
}

/// True if code can be at an address: a jump to any other address faults.
pub const fn is_canonical(address: u64) -> bool {
    let upper = address as i64 >> 56;
    upper == 0 || upper == -1
}

/// A thread's tables. Before their first use, call [`KnownTargets::forget`].
#[derive(Clone, Copy)]
pub struct KnownTargets {
    near: usize,
    far: usize,
}

impl KnownTargets {
    /// # Safety
    ///
    /// There must be [`NEAR_ENTRIES`] entries of 16 bytes at `near` and [`BYTES`] bytes at `far`,
    /// used for nothing else as long as the result is in use.
    pub const unsafe fn at(near: usize, far: usize) -> KnownTargets {
        KnownTargets { near, far }
    }

    /// Clears all keys. The tables' thread may be doing a lookup: after it has found a key it reads
    /// the value, so values stay. (No thread looks up addresses of a library that is being
    /// unmapped, since none may call it.)
    pub fn forget(self) {
        for (table, places, ways) in [
            (self.near, NEAR_ENTRIES, 1),
            (self.far, FAR_SETS, WAYS),
            (self.far + FAR_BYTES, FAR_SETS, WAYS),
        ] {
            for n in 0..places * ways {
                // SAFETY: an entry of the table, see [`KnownTargets::at`]. Its thread also reads
                // and writes whole words.
                unsafe { ((table + 16 * n) as *mut u64).write_volatile(nothing(n / ways)) };
            }
        }
    }

    /// Adds the clone of an original address to the near table.
    pub fn note_near(self, original: u64, clone: u64) {
        let place = hash(original, NEAR_ENTRIES);
        put((self.near + 16 * place) as *mut u64, place, original, clone);
    }

    /// Clone of an original address, if the far table has it.
    pub fn recall(self, original: u64) -> Option<u64> {
        find(self.far, original)
    }

    /// Adds the clone of an original address to the far table, for [`KnownTargets::recall`] and
    /// hooks.
    pub fn note(self, original: u64, clone: u64, turn: &Cell<u32>) {
        add(self.far, original, clone, turn);
    }

    /// Value of a fact about an address. Only canonical addresses have facts.
    pub fn recall_fact(self, fact: Fact, address: u64) -> Option<u64> {
        find(self.far + FAR_BYTES, fact.key(address)).filter(|_| is_canonical(address))
    }

    /// Stores a fact about an address of the program. (Hooks must not find it: a call through a
    /// pointer with the fact's bit set would go to the value.)
    pub fn note_fact(self, fact: Fact, address: u64, value: u64, turn: &Cell<u32>) {
        if is_canonical(address) {
            add(self.far + FAR_BYTES, fact.key(address), value, turn);
        }
    }
}

/// An entry of a table of [`FAR_SETS`] hashes.
fn way(table: usize, place: usize, way: usize) -> *mut u64 {
    (table + 16 * (WAYS * place + way)) as *mut u64
}

/// The value of a key in a table of [`FAR_SETS`] hashes of this thread.
fn find(table: usize, key: u64) -> Option<u64> {
    let place = hash(key, FAR_SETS);
    // SAFETY: entries of this thread's table.
    (0..WAYS)
        .map(|n| way(table, place, n))
        .find_map(|entry| unsafe {
            (entry.read_volatile() == key).then(|| entry.add(1).read_volatile())
        })
}

/// Adds a key to a table of [`FAR_SETS`] hashes of this thread. If both entries of its hash are
/// used, they are replaced in turns. Entries never move: another thread that clears the keys could
/// miss a moved one.
fn add(table: usize, key: u64, value: u64, turn: &Cell<u32>) {
    let place = hash(key, FAR_SETS);
    // SAFETY: entries of this thread's table.
    let free =
        (0..WAYS).find(|&n| unsafe { way(table, place, n).read_volatile() == nothing(place) });
    turn.set(turn.get().wrapping_add(1));
    put(
        way(table, place, free.unwrap_or(turn.get() as usize % WAYS)),
        place,
        key,
        value,
    );
}

/// Writes an entry of one of this thread's tables, in the place of its hash.
fn put(entry: *mut u64, place: usize, key: u64, value: u64) {
    // SAFETY: the callers' tables. The key is written last, since a signal may interrupt this
    // anywhere.
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

    /// Tables in their initial state.
    fn tables() -> KnownTargets {
        let at = |bytes: usize| vec![0u64; bytes / 8].leak().as_ptr() as usize;
        // SAFETY: memory of that size, which nothing else uses.
        let known = unsafe { KnownTargets::at(at(16 * NEAR_ENTRIES), at(BYTES)) };
        known.forget();
        known
    }

    /// Value that hooks find.
    fn found(known: KnownTargets, key: u64) -> Option<u64> {
        let entry = (known.near + 16 * hash(key, NEAR_ENTRIES)) as *const u64;
        // SAFETY: an entry of the near table.
        let near = unsafe { (entry.read() == key).then(|| entry.add(1).read()) };
        near.or_else(|| known.recall(key))
    }

    /// Two addresses for each hash.
    fn addresses() -> [Vec<u64>; 2] {
        let mut sets = vec![Vec::new(); FAR_SETS];
        let mut at = 0x40_0000;
        while sets.iter().any(|s| s.len() < 2) {
            sets[hash(at, FAR_SETS)].push(at);
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
            known.note(original, original + 1, &Cell::new(0));
        }
        assert!(
            all.iter()
                .all(|&original| found(known, original) == Some(original + 1)),
            "there is room for two of each hash"
        );
        known.forget();
        assert_eq!(found(known, 0), None, "a null pointer leads nowhere");
        assert!(all.iter().all(|&original| found(known, original).is_none()));
    }

    #[test]
    fn hooks_find_addresses_only() {
        let known = tables();
        let address = 0x7f12_3456_7890;
        for fact in [Fact::Outside, Fact::ReturnedTo, Fact::Linked] {
            known.note_fact(fact, address, 1, &Cell::new(0));
            assert_eq!(known.recall_fact(fact, address), Some(1));
            for tagged in [
                fact as u64 | address,
                Fact::Outside as u64 | fact as u64 | address,
            ] {
                assert_eq!(
                    found(known, tagged),
                    None,
                    "a call through a pointer with a tag goes where it goes"
                );
                assert_eq!(known.recall_fact(fact, tagged), None);
                known.note_fact(fact, tagged, 2, &Cell::new(0));
                assert_eq!(known.recall_fact(fact, address), Some(1));
            }
        }
        assert_eq!(found(known, address), None);
    }

    /// Test of a library that is unloaded while another thread adds addresses of other libraries.
    #[test]
    fn what_is_forgotten_does_not_come_back() {
        const ROUNDS: u32 = 2000;
        let known = tables();
        let [closed, open] = addresses();
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait = |turn: &AtomicU32, round| {
            (0u32..)
                .take_while(|_| turn.load(Ordering::Acquire) != round)
                .for_each(|n| {
                    if n % 4096 == 4095 {
                        std::thread::yield_now()
                    }
                })
        };
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
                closed
                    .iter()
                    .for_each(|&original| known.note(original, 1, &Cell::new(0)));
                begun.store(round, Ordering::Release);
                // The varying delay makes the two threads overlap at different points.
                (0..round % 256).for_each(|_| std::hint::spin_loop());
                open.iter()
                    .rev()
                    .for_each(|&original| known.note(original, 2, &Cell::new(0)));
                wait(&ended, round);
                back += closed
                    .iter()
                    .filter(|&&original| known.recall(original).is_some())
                    .count();
            }
            assert_eq!(back, 0);
        });
    }
}
