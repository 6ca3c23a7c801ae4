//! Messages of protocol buffers, as far as the formats need them: fields are appended to bytes, or
//! read one by one.

use mgz_annotations_schema::leb128;
use std::collections::HashMap;

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Bytes written so far.
    pub bytes: Vec<u8>,
}

fn varint(bytes: &mut Vec<u8>, value: u64) {
    leb128::encode(value, |byte| bytes.push(byte));
}

impl Message {
    /// An empty message.
    pub fn new() -> Message {
        Message::default()
    }

    /// A number. It is written even if it is 0.
    pub fn number(mut self, field: u32, value: u64) -> Message {
        varint(&mut self.bytes, u64::from(field) << 3);
        varint(&mut self.bytes, value);
        self
    }

    /// A number with a sign (`int64`).
    pub fn signed(self, field: u32, value: i64) -> Message {
        self.number(field, value as u64)
    }

    /// A text.
    pub fn text(self, field: u32, value: &str) -> Message {
        self.raw(field, value.as_bytes())
    }

    /// A nested message.
    pub fn message(self, field: u32, inner: Message) -> Message {
        self.raw(field, &inner.bytes)
    }

    /// Packed repeated numbers.
    pub fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Message {
        let mut inner = Vec::new();
        values.into_iter().for_each(|v| varint(&mut inner, v));
        self.raw(field, &inner)
    }

    /// A floating-point number.
    pub fn double(self, field: u32, value: f64) -> Message {
        self.fixed(field, value.to_bits())
    }

    /// A number of eight bytes (`fixed64`).
    pub fn fixed(mut self, field: u32, value: u64) -> Message {
        varint(&mut self.bytes, u64::from(field) << 3 | 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// Bytes.
    pub fn raw(mut self, field: u32, value: &[u8]) -> Message {
        varint(&mut self.bytes, u64::from(field) << 3 | 2);
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }
}

/// Entries that are stored once each, and referred to by number.
#[derive(Clone, Debug)]
pub struct Table {
    index: HashMap<Vec<u8>, u64>,
    list: Vec<Vec<u8>>,
}

impl Table {
    /// A table with the entry 0.
    pub fn new(first: &[u8]) -> Table {
        Table {
            index: HashMap::from([(first.to_vec(), 0)]),
            list: vec![first.to_vec()],
        }
    }

    /// The number of an entry, which is added if it is new.
    pub fn get(&mut self, entry: &[u8]) -> u64 {
        if let Some(&known) = self.index.get(entry) {
            return known;
        }
        let next = self.list.len() as u64;
        self.list.push(entry.to_vec());
        self.index.insert(entry.to_vec(), next);
        next
    }

    /// Adds all entries to a message, as a repeated field.
    pub fn write_to(&self, message: Message, field: u32) -> Message {
        let entries = self.list.iter();
        entries.fold(message, |message, entry| message.raw(field, entry))
    }
}

/// Value of a field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number of variable length, or of 4 or 8 bytes.
    Number(u64),
    /// A text, a nested message or packed numbers.
    Bytes(&'a [u8]),
}

/// Passes each field of a message to `each`, with its number. `None` if the message is damaged.
pub fn read_fields<'a>(
    mut bytes: &'a [u8],
    mut each: impl FnMut(u64, FieldValue<'a>),
) -> Option<()> {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        leb128::decode(u64::BITS, || bytes.split_off_first().copied())
    }
    fn part<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
        bytes.split_off(..usize::try_from(length).ok()?)
    }
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let value = match key & 7 {
            0 => FieldValue::Number(number(&mut bytes)?),
            1 => FieldValue::Number(u64::from_le_bytes(part(&mut bytes, 8)?.try_into().ok()?)),
            2 => {
                let length = number(&mut bytes)?;
                FieldValue::Bytes(part(&mut bytes, length)?)
            }
            5 => {
                let four = part(&mut bytes, 4)?.try_into().ok()?;
                FieldValue::Number(u32::from_le_bytes(four).into())
            }
            _ => return None,
        };
        each(key >> 3, value);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_damage_is_none() {
        let message = Message::new()
            .number(1, u64::MAX)
            .text(2, "testing")
            .double(3, 0.5);
        let fields = |bytes: &[u8]| {
            let mut all = Vec::new();
            let whole = read_fields(bytes, |number, value| {
                all.push(format!("{number} {value:?}"))
            });
            whole.map(|()| all)
        };
        let expected = [
            (1, FieldValue::Number(u64::MAX)),
            (2, FieldValue::Bytes(b"testing")),
            (3, FieldValue::Number(0.5f64.to_bits())),
        ];
        let expected = expected.map(|(number, value)| format!("{number} {value:?}"));
        assert_eq!(fields(&message.bytes).unwrap(), expected);
        // The fields end behind 11, 20 and 29 bytes.
        for at in 0..=message.bytes.len() {
            assert_eq!(
                fields(&message.bytes[..at]).is_some(),
                [0, 11, 20, 29].contains(&at),
                "{at}"
            );
        }
        assert_eq!(fields(&[0x0b, 0]), None, "groups are not read");
        assert_eq!(fields(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
    }

    /// The examples of the format's documentation.
    #[test]
    fn bytes_of_known_messages() {
        assert_eq!(Message::new().number(1, 150).bytes, [0x08, 0x96, 0x01]);
        assert_eq!(
            Message::new().text(2, "testing").bytes,
            [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
        );
        let inner = Message::new().number(1, 150);
        assert_eq!(
            Message::new().message(3, inner).bytes,
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(
            Message::new().packed(6, [3, 270, 86942]).bytes,
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
        assert_eq!(
            Message::new().signed(1, -2).bytes[1..],
            [0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]
        );
    }
}
