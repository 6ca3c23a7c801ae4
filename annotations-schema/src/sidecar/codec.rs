//! A column's elements as bytes, before compression and after decompression.

#[cfg(doc)]
use crate::sidecar::StoredColumn;
#[cfg(doc)]
use crate::sidecar::macros::TableRow;
use mgz_abi::leb128;

/// The form of a column's elements before compression. Compression time is proportional to bytes,
/// and wide numbers compress worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Little-endian.
    Plain,
    /// LEB128 with the sign in the lowest bit: for small numbers of either sign.
    Varint,
    /// The difference to the previous element (0 before the first), modulo the type's width,
    /// encoded like [`Form::Varint`]: for increasing numbers.
    Delta,
}

impl Form {
    /// [`StoredColumn::encoding`] of such a column.
    pub(crate) fn encoding(self) -> &'static str {
        match self {
            Form::Plain => "zstd",
            Form::Varint => "varint",
            Form::Delta => "delta",
        }
    }

    /// Writes elements, see [`TableRow::encode`].
    #[inline]
    pub(crate) fn encode<T: Element>(
        self,
        elements: impl ExactSizeIterator<Item = T>,
        before: T,
        room: &mut [u8],
    ) -> usize {
        match self {
            Form::Plain => {
                let bytes = elements.len() * size_of::<T>();
                elements
                    .zip(room.chunks_exact_mut(size_of::<T>()))
                    .for_each(|(element, to)| element.put(to));
                bytes
            }
            Form::Varint => varints(elements.map(|element| element.distance(T::default())), room),
            Form::Delta => {
                let mut last = before;
                varints(
                    elements.map(|element| element.distance(std::mem::replace(&mut last, element))),
                    room,
                )
            }
        }
    }
}

/// Writes LEB128 numbers. Returns their length in bytes.
#[inline]
fn varints(numbers: impl Iterator<Item = u64>, room: &mut [u8]) -> usize {
    let mut at = 0;
    for number in numbers {
        leb128::encode(number, |byte| {
            room[at] = byte;
            at += 1;
        });
    }
    at
}

/// Converts `rows` LEB128 numbers to little-endian elements of `size` bytes; `None` if there are
/// not exactly that many, or one does not fit.
pub(crate) fn expand(numbers: &[u8], rows: u64, size: usize, is_delta: bool) -> Option<Vec<u8>> {
    // Each has at least one byte, so a damaged count cannot allocate much more memory than the
    // file's size.
    let rows = usize::try_from(rows)
        .ok()
        .filter(|&rows| rows <= numbers.len())?;
    let mut out = Vec::with_capacity(rows * size);
    let mut bytes = numbers.iter();
    let mut last = 0u64;
    for _ in 0..rows {
        let number = leb128::decode_exactly(|| bytes.next().copied())?;
        if size < 8 && number >> (8 * size) != 0 {
            return None;
        }
        let value = leb128::unzigzag(number).cast_unsigned();
        last = if is_delta {
            last.wrapping_add(value)
        } else {
            value
        };
        out.extend_from_slice(&last.to_le_bytes()[..size]);
    }
    bytes.as_slice().is_empty().then_some(out)
}

/// The type of a field.
pub(crate) trait Element: Copy + Default {
    /// Writes it little-endian.
    fn put(self, to: &mut [u8]);
    /// The difference to another element, with the sign in the lowest bit.
    fn distance(self, other: Self) -> u64;
}

macro_rules! elements {
    ($($ty:ident $signed:ident $unsigned:ident),*) => {
        $(impl Element for $ty {
            #[inline]
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn distance(self, other: Self) -> u64 {
                let difference = self.wrapping_sub(other) as $signed;
                u64::from((difference << 1 ^ difference >> ($signed::BITS - 1)) as $unsigned)
            }
        })*
    };
}
elements!(u8 i8 u8, u32 i32 u32, u64 i64 u64, i64 i64 u64);

/// Bytes of an element of a type.
pub(crate) fn width(kind: &str) -> Option<usize> {
    Some(match kind {
        "u8" => 1,
        "u32" => 4,
        "u64" | "i64" => 8,
        _ => return None,
    })
}
