//! A frame of a call stack.

use crate::python::code::PythonCode;
use std::path::PathBuf;
use std::sync::Arc;

/// A call site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallFrame {
    /// The file that holds the code; empty if none does (code that was made at run time).
    pub file: Arc<PathBuf>,
    /// Address of the call's last byte, as linked. For Python code, the line.
    pub address: u64,
    /// The function, if it is one of Python.
    pub python: Option<Arc<PythonCode>>,
}
