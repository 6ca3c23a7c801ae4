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
    /// By piece: true if it is the user's.
    own: Vec<bool>,
    /// By piece of system code: the piece of the user's code that it is attributed to.
    near: HashMap<u32, u32, Mixed>,
    /// By piece of system code: its caller, from call paths of windows that began in it.
    callers: HashMap<u32, LineName, Mixed>,
}

impl<'a> Users<'a> {
    /// Relates system code to the user code around it in windows and on call paths.
    pub fn new(code: &'a CodeMap, windows: &[Window], paths: Option<&CallPaths>) -> Users<'a> {
        let mut beside: HashMap<(u32, u32), u64, Mixed> = HashMap::default();
        let own = own_pieces(code);
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
        let callers = paths.map_or_else(HashMap::default, |p| callers((code, &own), windows, p));
        Users {
            code,
            own,
            near,
            callers,
        }
    }

    /// Piece of the user's code that a piece is attributed to.
    pub fn piece(&self, piece: u32) -> u32 {
        if self.own.get(piece as usize) == Some(&true) {
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

/// By piece of system code: its most frequent caller, if windows began in it. `own`: as of
/// [`own_pieces`].
fn callers(
    (code, own): (&CodeMap, &[bool]),
    windows: &[Window],
    paths: &CallPaths,
) -> HashMap<u32, LineName, Mixed> {
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
        let is_own = |piece: &u32| own.get(*piece as usize) == Some(&true);
        for piece in pieces.into_iter().filter(|piece| !is_own(piece)) {
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

/// By piece: true if it is the user's, or if its position is unknown.
fn own_pieces(code: &CodeMap) -> Vec<bool> {
    // Most neighbours have the same module and file.
    let mut last: Option<((&str, &str), CodeOrigin)> = None;
    let own = (0..).zip(&code.pieces).map(|(piece, at)| {
        let Some(line) = code.lines.get(at.line as usize) else {
            return code.user(piece).is_some();
        };
        let place = (line.module.as_str(), line.file.as_str());
        let origin = match last {
            Some((same, origin)) if same == place => origin,
            _ => CodeOrigin::of(place.0, place.1),
        };
        last = Some((place, origin));
        match origin {
            CodeOrigin::Interpreter => false,
            CodeOrigin::User => true,
            CodeOrigin::System => code.user(piece).is_some(),
        }
    });
    own.collect()
}

/// Origin of code by its module and source file.
#[derive(Clone, Copy, PartialEq)]
enum CodeOrigin {
    User,
    System,
    /// Its sources may be known; its users are the lines of Python.
    Interpreter,
}

impl CodeOrigin {
    fn of(module: &str, file: &str) -> CodeOrigin {
        if is_interpreter(module) {
            return CodeOrigin::Interpreter;
        }
        let is_system = mgz_annotations_schema::sources::is_system(file)
            || is_library(module)
            || is_installed_module(module, file);
        match is_system {
            true => CodeOrigin::System,
            false => CodeOrigin::User,
        }
    }
}
