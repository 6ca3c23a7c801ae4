//! Tables and streams of rows by way of Arrow's C stream interface.

use crate::failed_by;
use polars::prelude::{CompatLevel, DataFrame, SchemaExt};
use polars_arrow::array::{Array, StructArray};
use polars_arrow::datatypes::{ArrowDataType, Field};
use polars_arrow::ffi::{ArrowArrayStream, export_iterator};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

pub(crate) type Batch = Result<Box<dyn Array>, polars::error::PolarsError>;

fn capsule<'py>(
    py: Python<'py>,
    batches: Box<dyn Iterator<Item = Batch> + Send>,
    of: ArrowDataType,
) -> PyResult<Bound<'py, PyCapsule>> {
    let field = Field::new("".into(), of, false);
    let stream: ArrowArrayStream = export_iterator(batches, field);
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// A table.
#[pyclass(frozen, name = "Frame", module = "mgz._mgz")]
pub(crate) struct PyFrame(pub(crate) DataFrame);

#[pymethods]
impl PyFrame {
    fn __len__(&self) -> usize {
        self.0.height()
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0
            .get_column_names()
            .into_iter()
            .map(|name| name.to_string())
            .collect()
    }

    /// The rows as a JSON array of objects.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            serde_json::to_string(&mgz_analyzer::data::frame::json_rows(&self.0))
                .map_err(|e| failed_by(e.to_string()))
        })
    }

    /// A capsule with an `ArrowArrayStream`. The requested schema is only a wish, which is not met.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let mut frame = self.0.clone();
        let batches: Vec<Batch> = py.detach(|| {
            frame.rechunk_mut();
            let fields = frame.schema().to_arrow(CompatLevel::oldest());
            let of = ArrowDataType::Struct(fields.iter_values().cloned().collect());
            frame
                .iter_chunks(CompatLevel::oldest(), false)
                .map(|chunk| {
                    let (length, arrays) = (chunk.len(), chunk.into_arrays());
                    StructArray::try_new(of.clone(), length, arrays, None)
                        .map(|array| Box::new(array) as Box<dyn Array>)
                })
                .collect()
        });
        let fields = self.0.schema().to_arrow(CompatLevel::oldest());
        let of = ArrowDataType::Struct(fields.iter_values().cloned().collect());
        capsule(py, Box::new(batches.into_iter()), of)
    }
}

/// Rows that are read while they are asked for, anew by each who asks.
#[pyclass(frozen, module = "mgz._mgz")]
pub(crate) struct Stream {
    pub(crate) of: ArrowDataType,
    pub(crate) start: Arc<dyn Fn() -> Receiver<Batch> + Send + Sync>,
}

#[pymethods]
impl Stream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let start = self.start.clone();
        // Nothing is read before the first batch is asked for: some ask for the schema alone.
        let batches = std::iter::once_with(move || start().into_iter()).flatten();
        capsule(py, Box::new(batches), self.of.clone())
    }
}
