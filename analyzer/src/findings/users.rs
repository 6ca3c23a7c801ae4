//! Attribution of loads to the user's own code.
//!
//! A load inlined from a system header is attributed to the frame that it was inlined into. If such
//! code was not inlined, its caller is found on the call path of windows that began in it. If no
//! window began in it, the load is attributed to the load of the user's own code before it in the
//! window, or else after it.

use crate::data::call_paths::{
    CallPaths, Position, is_installed_module, is_interpreter, is_library,
};
use crate::data::code_map::{CodeMap, LineName};
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// Positions of the user's code.
pub struct Users<'a> {
    code: &'a CodeMap,
    /// By piece of system code: the piece of the user's code that it is attributed to.
    near: HashMap<u32, u32, Mixed>,
    /// By piece of system code: its caller, from call paths of windows that began in it.
    callers: HashMap<u32, LineName, Mixed>,
}

impl<'a> Users<'a> {
    /// Relates system code to the user code around it in windows and on call paths.
    pub fn new(code: &'a CodeMap, windows: &[Window], paths: Option<&CallPaths>) -> Users<'a> {
        let mut beside: HashMap<(u32, u32), u64, Mixed> = HashMap::default();
        let own: Vec<bool> = (0..code.pieces.len() as u32)
            .map(|piece| is_own(code, piece))
            .collect();
        for window in windows {
            let mut last = None;
            let mut waiting: Vec<u32> = Vec::new();
            for row in &window.rows {
                let piece = row.group.piece();
                if own.get(piece as usize) == Some(&true) {
                    for other in waiting.drain(..) {
                        *beside.entry((other, piece)).or_default() += 1;
                    }
                    last = Some(piece);
                } else if let Some(last) = last {
                    *beside.entry((piece, last)).or_default() += 1;
                } else {
                    waiting.push(piece);
                }
            }
        }
        let mut near: HashMap<u32, (u64, u32), Mixed> = HashMap::default();
        for ((piece, own), count) in beside {
            let best = near.entry(piece).or_default();
            *best = (*best).max((count, own));
        }
        let near = near
            .into_iter()
            .map(|(piece, best)| (piece, best.1))
            .collect();
        let callers = paths.map_or_else(HashMap::default, |p| callers(code, windows, p));
        Users {
            code,
            near,
            callers,
        }
    }

    /// Piece of the user's code that a piece is attributed to.
    pub fn piece(&self, piece: u32) -> u32 {
        if is_own(self.code, piece) {
            return piece;
        }
        self.near.get(&piece).copied().unwrap_or(piece)
    }

    /// Position in the user's code that a piece is attributed to.
    pub fn line(&self, piece: u32) -> LineName {
        if let Some(caller) = self.callers.get(&piece) {
            return caller.clone();
        }
        let piece = self.piece(piece);
        if let Some(user) = self.code.user(piece) {
            return user.clone();
        }
        let at = self.code.pieces.get(piece as usize);
        at.and_then(|p| self.code.lines.get(p.line as usize))
            .cloned()
            .unwrap_or_default()
    }

    /// Function of a piece, with its innermost loop.
    pub fn inner(&self, piece: u32) -> (u32, Option<u32>) {
        let at = self.code.pieces.get(self.piece(piece) as usize);
        at.map_or((u32::MAX, None), |p| (p.function, p.loops.first().copied()))
    }

    /// True if a piece is in one of these loops, or in one of these functions if no loop is given.
    pub fn is_in(&self, piece: u32, inner: &[(u32, Option<u32>)]) -> bool {
        let at = self.code.pieces.get(self.piece(piece) as usize);
        at.is_some_and(|p| {
            inner.iter().any(|&(function, in_loop)| match in_loop {
                Some(l) => p.loops.contains(&l),
                None => p.function == function,
            })
        })
    }

    /// Function of a piece, with its outermost loop.
    pub fn region(&self, piece: u32) -> (u32, Option<u32>) {
        let piece = self.piece(piece);
        let at = self.code.pieces.get(piece as usize);
        at.map_or((u32::MAX, None), |p| (p.function, p.loops.last().copied()))
    }
}

/// By piece of system code: its most frequent caller, if windows began in it.
fn callers(code: &CodeMap, windows: &[Window], paths: &CallPaths) -> HashMap<u32, LineName, Mixed> {
    let mut found: HashMap<u32, HashMap<Position, u64>, Mixed> = HashMap::default();
    for window in windows {
        let leaf = paths.of(window.sample);
        if leaf == 0 {
            continue;
        }
        // Each window counts once for a piece.
        let mut pieces: Vec<u32> = window.rows.iter().map(|r| r.group.piece()).collect();
        pieces.sort_unstable();
        pieces.dedup();
        for piece in pieces.into_iter().filter(|&p| !is_own(code, p)) {
            let call = function_of(code, piece).and_then(|f| paths.find(leaf, f));
            if let Some(position) = call.and_then(|c| paths.caller_of(c)) {
                *found.entry(piece).or_default().entry(position).or_default() += 1;
            }
        }
    }
    let most = |positions: HashMap<Position, u64>| {
        let best = positions
            .into_iter()
            .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
        best.map(|(at, _)| LineName {
            function: at.function,
            file: at.file,
            line: at.line,
            ..LineName::default()
        })
    };
    (found.into_iter())
        .filter_map(|(piece, positions)| Some((piece, most(positions)?)))
        .collect()
}

/// Function of the machine code of a piece.
pub(crate) fn function_of(code: &CodeMap, piece: u32) -> Option<&str> {
    let piece = code.pieces.get(piece as usize)?;
    let function = code.functions.get(piece.function as usize)?;
    Some(&function.function)
}

/// True if a piece is the user's, or if its position is unknown.
fn is_own(code: &CodeMap, piece: u32) -> bool {
    let at = code.pieces.get(piece as usize);
    let line = at.and_then(|p| code.lines.get(p.line as usize));
    // The interpreter's sources may be known, but its users are the lines of Python.
    if line.is_some_and(|l| is_interpreter(&l.module)) {
        return false;
    }
    code.user(piece).is_some()
        || line.is_some_and(|l| {
            !mgz_annotations_schema::sources::is_system(&l.file)
                && !is_library(&l.module)
                && !is_installed_module(&l.module, &l.file)
        })
}
