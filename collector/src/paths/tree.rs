//! Call stacks as a tree of calls, by address.

use crate::objects::heap::call_frame::CallFrame;
use crate::objects::heap::unwind::Unwound;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// No call.
pub const NONE: u32 = 0;
/// Node in place of unknown callers.
pub const UNKNOWN: u32 = 1;

/// A frame that stands for skipped callers.
pub fn gap() -> CallFrame {
    CallFrame::default()
}

/// A call, or the position of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The caller's node; [`NONE`] for a thread's first function.
    pub parent: u32,
    /// Number of the file.
    pub file: u32,
    /// Address of the call's last byte, or of the next instruction to run, as linked.
    pub address: u64,
}

/// All calls.
#[derive(Clone, Debug)]
pub struct Tree {
    /// By number; the first two are [`NONE`] and [`UNKNOWN`]. Callers come before their callees.
    pub nodes: Vec<Node>,
    /// Files by number.
    pub files: Vec<Arc<PathBuf>>,
    numbers: HashMap<Node, u32>,
    of_file: HashMap<Arc<PathBuf>, u32>,
}

impl Default for Tree {
    fn default() -> Tree {
        let nobody = Node {
            parent: NONE,
            file: u32::MAX,
            address: 0,
        };
        Tree {
            nodes: vec![nobody; 2],
            files: Vec::new(),
            numbers: HashMap::new(),
            of_file: HashMap::new(),
        }
    }
}

impl Tree {
    /// The innermost call of a call stack, [`NONE`] if it has none.
    pub fn add(&mut self, found: &Unwound) -> u32 {
        if found.frames.is_empty() {
            return NONE;
        }
        let root = if found.whole { NONE } else { UNKNOWN };
        found
            .frames
            .iter()
            .rev()
            .fold(root, |parent, frame| self.call(parent, frame))
    }

    fn call(&mut self, parent: u32, frame: &CallFrame) -> u32 {
        let file = match self.of_file.get(&frame.file) {
            Some(&file) => file,
            None => {
                let file = self.files.len() as u32;
                self.files.push(frame.file.clone());
                self.of_file.insert(frame.file.clone(), file);
                file
            }
        };
        let node = Node {
            parent,
            file,
            address: frame.address,
        };
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        })
    }

    /// True if a call's callers are known up to the thread's first function.
    pub fn is_whole(&self, mut node: u32) -> bool {
        while let Some(at) = self.nodes.get(node as usize).filter(|_| node > UNKNOWN) {
            node = at.parent;
        }
        node == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_calls() {
        let file = Arc::new(PathBuf::from("/a"));
        let stack = |addresses: &[u64], whole| Unwound {
            frames: addresses
                .iter()
                .map(|&address| CallFrame {
                    file: file.clone(),
                    address,
                    python: None,
                })
                .collect(),
            whole,
            short: false,
        };
        let mut tree = Tree::default();
        let first = tree.add(&stack(&[30, 20, 10], true));
        let again = tree.add(&stack(&[30, 20, 10], true));
        let other = tree.add(&stack(&[31, 20, 10], true));
        let cut = tree.add(&stack(&[30, 20], false));
        assert_eq!(first, again);
        assert_eq!(
            tree.nodes[first as usize].parent,
            tree.nodes[other as usize].parent
        );
        assert_eq!(tree.nodes.len(), 2 + 3 + 1 + 2);
        assert!(tree.is_whole(first) && !tree.is_whole(cut));
        assert_eq!(tree.add(&stack(&[], false)), NONE);
    }
}
