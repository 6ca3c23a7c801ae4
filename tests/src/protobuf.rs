//! Reader of messages of protocol buffers, written from the description of their encoding.

use mgz_abi::leb128;

/// A field: a number, or bytes.
pub enum Field<'a> {
    /// A number of variable length.
    Number(u64),
    /// Bytes: of a text, a message, packed numbers, or a number of eight bytes.
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    leb128::decode(u64::BITS, || bytes.split_off_first().copied()).unwrap()
}

/// The fields of a message, with their numbers.
pub fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Bytes(value)
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, field));
    }
    out
}

/// Texts, messages or packed numbers in a field.
pub fn inside<'a>(message: &[(u64, Field<'a>)], number: u64) -> Vec<&'a [u8]> {
    message
        .iter()
        .filter_map(|(n, f)| match f {
            Field::Bytes(bytes) if *n == number => Some(*bytes),
            _ => None,
        })
        .collect()
}

/// A number in a field.
pub fn number(message: &[(u64, Field<'_>)], number: u64) -> Option<u64> {
    message.iter().find_map(|(n, f)| match f {
        Field::Number(value) if *n == number => Some(*value),
        _ => None,
    })
}

/// Packed numbers.
pub fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        out.push(varint(&mut bytes));
    }
    out
}
