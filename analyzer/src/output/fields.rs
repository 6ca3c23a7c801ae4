//! Loads of objects by field of their elements, as text.

use crate::output::text_table::{Style, heading, push, row, text_table};
use crate::util::human::{bytes, count, percent};
use crate::views::object_row::ObjectRow;

/// Maximum number of fields shown per object. Source: Chosen.
const MAX_FIELDS: usize = 12;

/// The table.
pub(crate) fn fields(rows: &[ObjectRow], style: Style, out: &mut String) {
    let known: Vec<&ObjectRow> = rows.iter().filter(|o| !o.fields.is_empty()).collect();
    if known.is_empty() {
        return;
    }
    let shown: Vec<ObjectRow> = known
        .iter()
        .take(style.rows)
        .map(|o| (*o).clone())
        .collect();
    heading(
        out,
        &format!(
            "Fields of elements ({} of {}; from the loads that findings use)",
            shown.len(),
            objects_text(known.len())
        ),
    );
    let names = [
        "object", "type", "element", "field", "offset", "bytes", "A", "A%",
    ];
    let mut t = text_table(style, &names, 2);
    for (o, name) in shown
        .iter()
        .zip(crate::output::names::object_names(&shown, 40))
    {
        let mut fields: Vec<_> = o.fields.iter().collect();
        fields.sort_by_key(|f| (std::cmp::Reverse(f.rows), f.offset));
        let rest: u64 = fields.iter().skip(MAX_FIELDS).map(|f| f.rows).sum();
        fields.truncate(MAX_FIELDS);
        fields.sort_by_key(|f| f.offset);
        for (number, f) in fields.iter().enumerate() {
            let [object, of_type, element] = match number {
                0 => [
                    name.clone(),
                    crate::util::elided::elided(&o.of_type),
                    bytes(o.element_bytes),
                ],
                _ => Default::default(),
            };
            t.add_row(row(
                vec![
                    object,
                    of_type,
                    element,
                    f.field.clone(),
                    f.offset.to_string(),
                    f.bytes.to_string(),
                    count(f.rows),
                    percent(Some(f.share)),
                ],
                2,
            ));
        }
        if rest > 0 {
            let share = rest as f64 * 100.0 / o.fields.iter().map(|f| f.rows).sum::<u64>() as f64;
            let mut cells = vec![String::new(); 6];
            cells[3] = format!("({} more)", o.fields.len() - MAX_FIELDS);
            cells.extend([count(rest), percent(Some(share))]);
            t.add_row(row(cells, 2));
        }
    }
    push(out, &t);
}

fn objects_text(count: usize) -> String {
    if count == 1 {
        "1 object".into()
    } else {
        format!("{count} objects")
    }
}
