//! Macros that declare the tables of a sidecar (a row type and its conversion to columns) and
//! enumerations whose variants are numbers in it.

use crate::sidecar::codec::Form;

/// Declares a table's row type and its conversion to and from columns. The [`Form`] of the column
/// follows each field's type.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ident => $form:ident, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )* }

        impl crate::sidecar::macros::TableRow for $name {
            const FIELDS: &'static [(&'static str, &'static str, crate::sidecar::codec::Form)] =
                &[ $( (stringify!($field), stringify!($ty), crate::sidecar::codec::Form::$form), )* ];
            fn encode(rows: &[Self], before: &Self, field: usize, room: &mut [u8]) -> usize {
                let mut at = 0;
                $( if field == at {
                    return crate::sidecar::codec::Form::$form.encode(rows.iter().map(|row| row.$field), before.$field, room);
                } at += 1; )*
                let _ = at;
                0
            }
            fn decode(rows: &mut [Self], field: usize, bytes: &[u8]) {
                let mut at = 0;
                $( if field == at {
                    for (row, chunk) in rows.iter_mut().zip(bytes.chunks_exact(size_of::<$ty>())) {
                        row.$field = <$ty>::from_le_bytes(chunk.try_into().expect("chunks_exact gives this length"));
                    }
                    return;
                } at += 1; )*
                let _ = at;
            }
        }
    };
}
pub(crate) use table;

/// Declares an enumeration with the number of each variant in the file.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $number:literal, )* }) => {
        $(#[$doc])*
        #[repr(u8)]
        pub enum $name { $( $(#[$vdoc])* $variant = $number, )* }

        impl $name {
            /// All variants, by number.
            pub const ALL: &'static [$name] = &[ $( $name::$variant, )* ];

            /// The variant with this number, if there is one.
            pub const fn from_u8(value: u8) -> Option<$name> {
                match value {
                    $( $number => Some($name::$variant), )*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use numbered;

/// A table row that can be split into columns.
pub(crate) trait TableRow: Copy + Default + Send + Sync {
    /// Names, types and forms of the fields.
    const FIELDS: &'static [(&'static str, &'static str, Form)];
    /// Writes one field of all rows to the beginning of `room`,
    /// [`MAX_BYTES`](mgz_abi::leb128::MAX_BYTES) bytes for each, and returns the number of bytes
    /// written. `before`: the row before them.
    fn encode(rows: &[Self], before: &Self, field: usize, room: &mut [u8]) -> usize;
    /// Sets one field of all rows, from little-endian elements.
    fn decode(rows: &mut [Self], field: usize, bytes: &[u8]);
}
