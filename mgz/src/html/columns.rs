//! Rows stored by columns: each key is written once, and equal values are adjacent, which
//! compresses well.

use serde_json::{Map, Value, json};

/// The table: number of rows, and columns by name. A missing value is null.
pub fn columns_of_rows(rows: &[Value]) -> Value {
    let mut columns: Map<String, Value> = Map::new();
    for (at, row) in rows.iter().enumerate() {
        for (key, value) in row.as_object().into_iter().flatten() {
            let column = columns
                .entry(key.clone())
                .or_insert_with(|| Value::Array(vec![Value::Null; rows.len()]));
            if let Some(cell) = column.get_mut(at) {
                *cell = value.clone();
            }
        }
    }
    json!({ "rows": rows.len(), "columns": columns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_differ_in_their_keys() {
        let rows = [json!({"a": 1}), json!({"b": "x", "a": null}), json!(7)];
        let expected =
            json!({"rows": 3, "columns": {"a": [1, null, null], "b": [null, "x", null]}});
        assert_eq!(columns_of_rows(&rows), expected);
        assert_eq!(columns_of_rows(&[]), json!({"rows": 0, "columns": {}}));
    }
}
