//! A cheap hash for maps that are queried once for each row or mark.

use std::hash::{BuildHasherDefault, Hasher};

/// Builder of [`Mix`].
pub type Mixed = BuildHasherDefault<Mix>;

/// One multiplication for each number. It is not safe for keys that an attacker chooses.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The lowest bits of a product depend on few bits of its factors.
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
