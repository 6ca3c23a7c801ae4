//! `mgz._mgz`: the native part of the Python package `mgz`. It calls the analyzer as a library and
//! returns plain data. `python/mgz/` adds names, documentation and pictures.
//!
//! No function holds the interpreter's lock while it reads or computes.

mod arrow;
mod buffer;
mod models;
mod ranks;
mod trace;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

pyo3::create_exception!(
    _mgz,
    Error,
    PyException,
    "Something cannot be done. The text is the sentence that the commands print."
);

/// An error with the sentence that `mgz-analyze` prints.
pub(crate) fn failed(error: anyhow::Error) -> PyErr {
    Error::new_err(format!("{error:#}"))
}

/// An error with this sentence.
pub(crate) fn failed_by(sentence: impl Into<String>) -> PyErr {
    Error::new_err(sentence.into())
}

#[pymodule]
fn _mgz(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<arrow::PyFrame>()?;
    module.add_class::<arrow::Stream>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<trace::Analysis>()?;
    module.add_function(wrap_pyfunction!(trace::merge_partials, module)?)?;
    models::add_models(module)?;
    ranks::add_ranks(module)
}
