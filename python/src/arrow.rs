//! Tables and streams of rows through Arrow's C stream interface.

use crate::failed_by;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, SchemaRef};
use mgz_analyzer::data::frame::{Frame, json_rows};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

pub(crate) type Batch = Result<RecordBatch, ArrowError>;

fn capsule<'py>(
    py: Python<'py>,
    batches: impl Iterator<Item = Batch> + Send + 'static,
    of: SchemaRef,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batches = RecordBatchIterator::new(batches, of);
    let stream = FFI_ArrowArrayStream::new(Box::new(batches));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// A table.
#[pyclass(frozen, name = "Frame", module = "mgz._mgz")]
pub(crate) struct PyFrame(pub(crate) Frame);

#[pymethods]
impl PyFrame {
    fn __len__(&self) -> usize {
        self.0.height()
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let names = self.0.columns().iter().map(|c| c.name().to_owned());
        names.collect()
    }

    /// The rows as a JSON array of objects.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            serde_json::to_string(&json_rows(&self.0)).map_err(|e| failed_by(e.to_string()))
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
        let records = self.0.records();
        let of = records.schema();
        capsule(py, std::iter::once(Ok(records)), of)
    }
}

/// Rows that are read on demand, again for each consumer.
#[pyclass(frozen, module = "mgz._mgz")]
pub(crate) struct Stream {
    pub(crate) of: SchemaRef,
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
        // Nothing is read before the first batch is requested, since some consumers need only the
        // schema.
        let batches = std::iter::once_with(move || start().into_iter()).flatten();
        capsule(py, batches, self.of.clone())
    }
}
