//! Layout of an object's elements: their size and fields.

/// A field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Field {
    /// Bytes from the element's begin.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// As in the source.
    pub name: String,
}

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Element {
    /// Bytes; 0 if elements are not known.
    pub bytes: u64,
    /// Fields, by offset.
    pub fields: Vec<Field>,
}

impl Element {
    /// Parses columns of `objects.parquet`: `0:8:next,8:4:key`. Invalid fields are left out.
    pub(crate) fn parse(bytes: u64, fields: &str) -> Element {
        let field = |text: &str| {
            let mut parts = text.splitn(3, ':');
            let offset: u64 = parts.next()?.parse().ok()?;
            let size: u64 = parts.next()?.parse().ok()?;
            let name = parts.next()?.to_owned();
            (offset.checked_add(size)? <= bytes).then_some(Field {
                offset,
                bytes: size,
                name,
            })
        };
        let mut fields: Vec<Field> = fields.split(',').filter_map(field).collect();
        fields.sort_by_key(|f| f.offset);
        Element { bytes, fields }
    }

    /// The field at an offset.
    pub(crate) fn field(&self, offset: u64) -> Option<&Field> {
        let next = self.fields.partition_point(|f| f.offset <= offset);
        let field = self.fields.get(next.checked_sub(1)?)?;
        (offset - field.offset < field.bytes).then_some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_offset_and_damaged_ones_are_none() {
        let element = Element::parse(24, "8:4:key,0:8:next,x,16:99:far,16:4:a:b");
        let at = |offset| element.field(offset).map(|f| f.name.as_str());
        assert_eq!(
            [0, 7, 8, 11, 12, 19, 20].map(at),
            [
                Some("next"),
                Some("next"),
                Some("key"),
                Some("key"),
                None,
                Some("a:b"),
                None
            ]
        );
        assert_eq!(
            Element::parse(8, ""),
            Element {
                bytes: 8,
                fields: Vec::new()
            }
        );
    }
}
