//! Tables that are built, written and read again.

use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::sync::Arc;

fn made(name: &str, kind: ColumnKind, values: Value) -> Column {
    let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
    column(name, kind, &values).unwrap()
}

fn mixed() -> Frame {
    frame(vec![
        made(
            "n",
            ColumnKind::Whole,
            serde_json::json!([0, null, u64::MAX]),
        ),
        made(
            "x, y",
            ColumnKind::Number,
            serde_json::json!([1, 1e-9, null]),
        ),
        made(
            "name",
            ColumnKind::Text,
            serde_json::json!(["std::map<int, int>", "", null]),
        ),
    ])
    .unwrap()
}

#[test]
fn csv_has_quotes_where_they_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let csv = |table: &Frame| {
        write_csv(table, File::create(&path).unwrap()).unwrap();
        std::fs::read_to_string(&path).unwrap()
    };
    assert_eq!(
        csv(&mixed()),
        "n,\"x, y\",name\n0,1.0,\"std::map<int, int>\"\n,1e-9,\"\"\n18446744073709551615,,\n"
    );
    let said = made("t", ColumnKind::Text, serde_json::json!(["say \"no\"\n"]));
    assert_eq!(
        csv(&frame(vec![said]).unwrap()),
        "t\n\"say \"\"no\"\"\n\"\n"
    );
}

#[test]
fn flags_lists_and_records_have_types_of_their_own_in_parquet_and_are_text_in_csv() {
    const ITEM: ColumnKind =
        ColumnKind::Record(&[("from", ColumnKind::Signed), ("pct", ColumnKind::Number)]);
    let strides = serde_json::json!([[{"from": -8, "pct": 50.0}, {"from": 8, "pct": null}], []]);
    let table = frame(vec![
        made("flag", ColumnKind::Flag, serde_json::json!([true, null])),
        made("strides", ColumnKind::List(&ITEM), strides.clone()),
        made(
            "stack",
            ColumnKind::List(&ColumnKind::Text),
            serde_json::json!([["f < g", "h"], null]),
        ),
    ])
    .unwrap();
    let again = json_rows(&table);
    assert_eq!(
        [&again[0]["strides"], &again[1]["strides"]],
        [&strides[0], &strides[1]]
    );
    assert!(again[1]["stack"].is_null() && again[0]["flag"] == true);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    write_csv(&table, File::create(&path).unwrap()).unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        concat!(
            "flag,strides,stack\n",
            "true,\"{\"\"from\"\":-8,\"\"pct\"\":50.0}; {\"\"from\"\":8,\"\"pct\"\":null}\",f < g; h\n",
            ",\"\",\n"
        )
    );
    // Read by the reader of another crate than the writer's.
    write_parquet(&table, File::create(&path).unwrap()).unwrap();
    let batch = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap())
        .unwrap()
        .build()
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let flags = batch.column(0).as_boolean();
    assert!(flags.value(0) && flags.is_null(1));
    let strides = batch.column(1).as_list::<i64>();
    assert_eq!((strides.value_length(0), strides.value_length(1)), (2, 0));
    let first = strides.value(0);
    let first = first.as_struct();
    assert_eq!(
        first.column(0).as_primitive::<Int64Type>().values(),
        &[-8, 8]
    );
    assert!(first.column(1).is_null(1) && !first.column(1).is_null(0));
    let stack = batch.column(2).as_list::<i64>();
    assert_eq!(stack.value(0).as_string::<i64>().value(1), "h");
    assert!(stack.is_null(1));
}

#[test]
fn values_of_another_kind_are_refused() {
    let refused = |kind, value: Value| column("c", kind, &[&value]).is_err();
    assert!(refused(ColumnKind::Whole, (-1).into()) && refused(ColumnKind::Whole, 0.5.into()));
    assert!(refused(ColumnKind::Flag, "yes".into()) && refused(ColumnKind::Text, 5.into()));
    assert!(refused(
        ColumnKind::List(&ColumnKind::Text),
        serde_json::json!(["a", 5])
    ));
    assert!(!refused(ColumnKind::Number, 5.into()) && !refused(ColumnKind::Signed, (-5).into()));
}

#[test]
fn parquet_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    for table in [
        mixed(),
        frame(vec![made("n", ColumnKind::Whole, serde_json::json!([]))]).unwrap(),
    ] {
        write_parquet(&table, File::create(&path).unwrap()).unwrap();
        let again = read_parquet(File::open(&path).unwrap()).unwrap();
        assert_eq!(json_rows(&again), json_rows(&table));
        assert_eq!(
            (again.height(), again.columns().len()),
            (table.height(), table.columns().len())
        );
    }
    std::fs::write(&path, "PAR1 nothing").unwrap();
    assert!(read_parquet(File::open(&path).unwrap()).is_err());
}

#[test]
fn all_kinds_of_numbers_and_texts_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let arrays: [(&str, ArrayRef); 4] = [
        (
            "small",
            Arc::new(arrow_array::UInt32Array::from(vec![7, 8])),
        ),
        (
            "signed",
            Arc::new(arrow_array::Int64Array::from(vec![7, -8])),
        ),
        (
            "float",
            Arc::new(arrow_array::Float32Array::from(vec![0.5, 2.0])),
        ),
        (
            "view",
            Arc::new(arrow_array::StringViewArray::from(vec!["a", "b"])),
        ),
    ];
    let batch = RecordBatch::try_from_iter(arrays).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let table = read_parquet(File::open(&path).unwrap()).unwrap();
    assert_eq!(numbers(&table, "small").unwrap(), [7, 8]);
    assert_eq!(whole(&table, "signed").unwrap(), [Some(7), None]);
    assert!(numbers(&table, "signed").unwrap_err().contains("negative"));
    assert_eq!(floats(&table, "float").unwrap(), [Some(0.5), Some(2.0)]);
    assert_eq!(texts(&table, "view").unwrap(), [Some("a"), Some("b")]);
    assert!(!has(&table, "flag") && has(&table, "view"));
    assert!(
        texts(&table, "small").is_err() && numbers(&table, "none").unwrap_err().contains("missing")
    );
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let cells = |name: &str, n: usize| made(name, ColumnKind::Whole, vec![Value::Null; n].into());
    assert!(frame(vec![cells("a", 1), cells("b", 2)]).is_err());
    assert!(frame(vec![cells("a", 1), cells("a", 1)]).is_err());
}
