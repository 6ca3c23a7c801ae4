//! Tables of a trace folder that are small beside the samples: Parquet, complete or not there.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes the table `name` into a folder, mode 0600. It appears under its name when it is whole.
pub fn write_small_table(
    folder: &Path,
    name: &str,
    schema: SchemaRef,
    batches: impl IntoIterator<Item = anyhow::Result<RecordBatch>>,
) -> anyhow::Result<()> {
    let temporary = folder.join(format!("{name}.tmp"));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    std::fs::rename(&temporary, folder.join(name))?;
    Ok(())
}
