//! Stacks of Python frames as a tree.

use crate::python::code::PythonCode;
use std::collections::HashMap;

/// No frame.
pub const NO_FRAME: u32 = 0;
/// Node in place of unknown callers.
pub const UNKNOWN_FRAME: u32 = 1;

/// A frame with its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonNode {
    /// The caller's node; [`NO_FRAME`]: there is no caller; [`UNKNOWN_FRAME`]: it is unknown.
    pub parent: u32,
    /// Number of the code.
    pub code: u32,
    /// Line; 0 if unknown.
    pub line: u32,
    /// True if C code entered the interpreter by this frame.
    pub is_entry: bool,
}

/// All stacks.
#[derive(Clone, Debug)]
pub struct PythonStacks {
    /// By number; the first two are [`NO_FRAME`] and [`UNKNOWN_FRAME`]. Callers come before their
    /// callees.
    pub nodes: Vec<PythonNode>,
    /// Code by number.
    pub codes: Vec<PythonCode>,
    numbers: HashMap<PythonNode, u32>,
    of_code: HashMap<PythonCode, u32>,
}

impl Default for PythonStacks {
    fn default() -> PythonStacks {
        let nobody = PythonNode {
            parent: NO_FRAME,
            code: u32::MAX,
            line: 0,
            is_entry: false,
        };
        PythonStacks {
            nodes: vec![nobody; 2],
            codes: Vec::new(),
            numbers: HashMap::new(),
            of_code: HashMap::new(),
        }
    }
}

impl PythonStacks {
    /// Number of a code.
    pub fn code(&mut self, code: PythonCode) -> u32 {
        if let Some(&number) = self.of_code.get(&code) {
            return number;
        }
        let number = self.codes.len() as u32;
        self.codes.push(code.clone());
        self.of_code.insert(code, number);
        number
    }

    /// The node of a frame with this caller.
    pub fn node(&mut self, node: PythonNode) -> u32 {
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        })
    }

    /// Frames from a node outwards.
    pub fn outwards(&self, node: u32) -> impl Iterator<Item = PythonNode> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let found = self.nodes.get(at as usize).filter(|_| at > UNKNOWN_FRAME)?;
            at = found.parent;
            Some(*found)
        })
    }

    /// True if the frames from a node outwards are complete.
    pub fn is_whole(&self, node: u32) -> bool {
        let outermost = self.outwards(node).last();
        outermost.is_some_and(|frame| frame.parent == NO_FRAME)
    }
}
