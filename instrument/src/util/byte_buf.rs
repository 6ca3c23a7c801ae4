//! Bytes that are appended a few at a time.

/// Bytes that grow at their end. The buffer already has room there with arbitrary content, so that
/// appending a few bytes mostly takes one comparison and no call.
#[derive(Debug, Default)]
pub struct ByteBuf {
    /// The bytes and the room.
    all: Vec<u8>,
    /// Number of bytes. Additions never overflow it.
    len: u32,
}

/// Number of bytes written at once.
const CHUNK: usize = 16;

impl ByteBuf {
    /// An empty buffer with room for `count` bytes.
    pub fn with_room(count: usize) -> ByteBuf {
        ByteBuf {
            all: vec![0; count + CHUNK],
            len: 0,
        }
    }

    /// Removes all bytes; their room stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Number of bytes.
    #[inline]
    pub fn count(&self) -> usize {
        self.len as usize
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.all[..self.count()]
    }

    /// All bytes, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.count();
        &mut self.all[..len]
    }

    /// Appends the first `len` of sixteen bytes, the lowest first.
    #[inline]
    pub fn put(&mut self, bytes: u128, len: u8) {
        let start = self.count();
        match self.all.get_mut(start..start + CHUNK) {
            Some(room) => {
                room.copy_from_slice(&bytes.to_le_bytes());
                self.len += u32::from(len);
            }
            None => self.put_behind(bytes, len),
        }
    }

    /// As `put`, if room must be made.
    #[cold]
    #[inline(never)]
    fn put_behind(&mut self, bytes: u128, len: u8) {
        self.grow(CHUNK);
        self.put(bytes, len);
    }

    fn grow(&mut self, more: usize) {
        self.all.resize(2 * self.all.len() + more, 0);
    }

    /// Appends these bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let (start, end) = (self.count(), self.count() + bytes.len());
        if end > self.all.len() {
            self.grow(bytes.len());
        }
        self.all[start..end].copy_from_slice(bytes);
        self.len = end as u32;
    }

    /// Appends the first `len` bytes of a slice that has at least that many.
    #[inline]
    pub fn extend_from_start(&mut self, from: &[u8], len: usize) {
        match from.first_chunk::<CHUNK>() {
            // (A copy of constant length takes a fraction of the time.)
            Some(&chunk) if len <= CHUNK => self.put(u128::from_le_bytes(chunk), len as u8),
            _ => self.extend_from_slice(&from[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_append_are_the_same() {
        let source: Vec<u8> = (0..100).collect();
        for room in [0, 5, 1000] {
            let (mut bytes, mut expected) = (ByteBuf::with_room(room), Vec::new());
            for n in 0..200 {
                let (at, len) = (n % 83, n * 7 % 17);
                match n % 3 {
                    0 => bytes.put(
                        u128::from_le_bytes(*source[at..].first_chunk().unwrap()),
                        len as u8,
                    ),
                    1 => bytes.extend_from_start(&source[at..], len),
                    _ => bytes.extend_from_slice(&source[at..at + len]),
                }
                expected.extend_from_slice(&source[at..at + len]);
                assert_eq!(
                    (bytes.as_slice(), bytes.count()),
                    (&expected[..], expected.len())
                );
            }
            bytes.extend_from_start(&source, 100);
            bytes.extend_from_start(&source[95..], 5);
            expected.extend_from_slice(&[&source[..], &source[95..]].concat());
            assert_eq!(bytes.as_slice(), expected);
        }
    }
}
