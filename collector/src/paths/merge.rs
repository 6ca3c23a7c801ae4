//! Python frames among the functions of the machine code.
//!
//! The interpreter's loop runs frames from the innermost one to the first one by which C code
//! entered it. So these frames replace its function on the machine's stack. The innermost loop
//! stays below them, as a function called from the line of Python. Other functions of the
//! interpreter between two Python frames, or outside all of them, are left out, since they only
//! connect frames.

use crate::paths::Paths;
use crate::paths::names::{CALLERS_UNKNOWN, name_calls};
use crate::paths::names::{Elsewhere, FunctionLine, Named, Namer, Original, Step};
use crate::paths::tree::{NONE, Tree};
use crate::python::is_loop;
use crate::python::stacks::NO_FRAME;
use crate::python::stacks::{PythonNode, PythonStacks};
use std::collections::BTreeSet;

/// Names the calls of all windows, with Python frames.
pub fn name_paths(paths: &Paths, original: Original<'_>, elsewhere: Elsewhere<'_>) -> Named {
    let pairs: BTreeSet<(u32, u32)> = (paths.windows.iter())
        .filter(|window| window.python != NO_FRAME)
        .map(|window| (window.node, window.python))
        .collect();
    if pairs.is_empty() {
        return name_calls(&paths.tree, original, elsewhere);
    }
    let mut namer = Namer::new(&paths.tree, original, elsewhere);
    let mut named = Named {
        of_node: vec![0; paths.tree.nodes.len()],
        ..Named::default()
    };
    for (node, python) in pairs {
        let machine: Vec<Vec<Step>> = (outwards(&paths.tree, node).into_iter())
            .map(|number| namer.steps(number))
            .collect();
        let steps = merged(machine, &paths.python, python);
        named.of_pair.insert((node, python), namer.path(&steps));
    }
    let alone = paths.windows.iter().filter(|w| w.python == NO_FRAME);
    let alone: BTreeSet<u32> = alone.map(|window| window.node).collect();
    for node in alone {
        let steps: Vec<Step> = (outwards(&paths.tree, node).into_iter())
            .flat_map(|number| namer.steps(number))
            .collect();
        named.of_node[node as usize] = namer.path(&steps);
    }
    named.calls = namer.finish();
    named
}

/// A node and its callers.
fn outwards(tree: &Tree, node: u32) -> Vec<u32> {
    let mut out = Vec::new();
    let mut at = node;
    while at != NONE {
        out.push(at);
        at = tree.nodes.get(at as usize).map_or(NONE, |node| node.parent);
    }
    out
}

/// One path with both kinds of frames, from the inside out. `machine`: the functions of each call.
fn merged(machine: Vec<Vec<Step>>, stacks: &PythonStacks, python: u32) -> Vec<Step> {
    let mut frames = stacks.outwards(python).peekable();
    let mut out: Vec<Step> = Vec::new();
    // The interpreter's file, once the innermost frame is met.
    let mut interpreter: Option<String> = None;
    for steps in machine {
        let outermost = steps.last();
        let is_loop = outermost.is_some_and(|step| is_loop(&step.place.function));
        if is_loop && frames.peek().is_some() {
            if interpreter.is_none() {
                interpreter = outermost.map(|step| step.module.clone());
                out.extend(steps);
            }
            for frame in frames.by_ref() {
                out.push(step_of(stacks, frame));
                if frame.is_entry {
                    break;
                }
            }
            continue;
        }
        let leads_on = |step: &Step| interpreter.as_ref() == Some(&step.module);
        if !outermost.is_some_and(leads_on) {
            out.extend(steps);
        }
    }
    // Python's list may have frames beyond the end of the stack's copy.
    let rest: Vec<Step> = frames.map(|frame| step_of(stacks, frame)).collect();
    let is_cut = |step: &Step| step.place.function == CALLERS_UNKNOWN;
    if !rest.is_empty() || stacks.is_whole(python) {
        while out.last().is_some_and(is_cut) {
            out.pop();
        }
    }
    out.extend(rest);
    if !stacks.is_whole(python) {
        // The entry of unknown callers comes directly after the outermost known frame.
        let known = out.iter().rposition(|step| step.python);
        out.truncate(known.map_or(0, |at| at + 1));
        out.push(Step {
            place: FunctionLine {
                function: CALLERS_UNKNOWN.into(),
                ..FunctionLine::default()
            },
            ..Step::default()
        });
    }
    out
}

fn step_of(stacks: &PythonStacks, frame: PythonNode) -> Step {
    let code = stacks.codes.get(frame.code as usize).cloned();
    let code = code.unwrap_or_default();
    Step {
        place: FunctionLine {
            function: code.name,
            file: code.file.clone(),
            line: frame.line,
        },
        module: code.file,
        inlined: false,
        python: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LOOP: &str = "_PyEval_EvalFrameDefault";
    use crate::python::code::PythonCode;

    fn machine(function: &str, module: &str) -> Vec<Step> {
        vec![Step {
            place: FunctionLine {
                function: function.into(),
                ..FunctionLine::default()
            },
            module: module.into(),
            ..Step::default()
        }]
    }

    /// A stack from frames given from the outside in: name, line and entry.
    fn python(stacks: &mut PythonStacks, frames: &[(&str, u32, bool)], root: u32) -> u32 {
        frames.iter().fold(root, |parent, &(name, line, is_entry)| {
            let code = stacks.code(PythonCode {
                name: name.into(),
                file: "/train.py".into(),
                first_line: 1,
            });
            stacks.node(PythonNode {
                parent,
                code,
                line,
                is_entry,
            })
        })
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|s| s.place.function.as_str()).collect()
    }

    const FRAMES: [(&str, u32, bool); 3] =
        [("<module>", 9, true), ("step", 41, false), ("key", 3, true)];

    fn stack() -> Vec<Vec<Step>> {
        [
            ("PyDict_GetItem", "/python"),
            (LOOP, "/python"),
            ("list_sort", "/python"),
            ("apply", "/module.so"),
            (LOOP, "/python"),
            ("PyRun_File", "/python"),
            ("main", "/python"),
            ("__libc_start_main", "/libc.so.6"),
        ]
        .map(|(function, module)| machine(function, module))
        .into()
    }

    #[test]
    fn frames_stand_where_the_loop_of_the_interpreter_runs_them() {
        let mut stacks = PythonStacks::default();
        let node = python(&mut stacks, &FRAMES, NO_FRAME);
        let steps = merged(stack(), &stacks, node);
        assert_eq!(
            names(&steps),
            [
                "PyDict_GetItem",
                LOOP,
                "key",
                "apply",
                "step",
                "<module>",
                "__libc_start_main"
            ]
        );
        assert_eq!((steps[4].place.line, steps[4].python), (41, true));
    }

    #[test]
    fn callers_beyond_the_copy_are_those_of_python() {
        let mut stacks = PythonStacks::default();
        let node = python(&mut stacks, &FRAMES, NO_FRAME);
        let mut cut = stack();
        cut.truncate(2);
        cut.push(vec![Step::default()]);
        cut[2][0].place.function = CALLERS_UNKNOWN.into();
        let whole = ["PyDict_GetItem", LOOP, "key", "step", "<module>"];
        assert_eq!(names(&merged(cut.clone(), &stacks, node)), whole);
        let cut_too = python(
            &mut stacks,
            &FRAMES[1..],
            crate::python::stacks::UNKNOWN_FRAME,
        );
        let steps = merged(cut, &stacks, cut_too);
        assert_eq!(names(&steps)[3..], ["step", CALLERS_UNKNOWN]);
        let steps = merged(stack(), &stacks, cut_too);
        let outermost = ["step", CALLERS_UNKNOWN];
        assert_eq!(
            names(&steps)[4..],
            outermost,
            "what is known of the machine's stack is farther out"
        );
        // The machine's stack is unknown.
        assert_eq!(
            names(&merged(Vec::new(), &stacks, node)),
            ["key", "step", "<module>"]
        );
    }

    #[test]
    fn functions_called_again_by_python_are_no_recursion() {
        let tree = Tree::default();
        let mut namer = Namer::new(&tree, &|_, _| None, &|_, _| None);
        let mut stacks = PythonStacks::default();
        let frames = [("f", 1, true), ("g", 2, true), ("f", 1, true)];
        let node = python(&mut stacks, &frames, NO_FRAME);
        let stack = ["work", LOOP, "apply", LOOP, "apply", LOOP, "apply"]
            .map(|f| machine(f, if f == LOOP { "/python" } else { "/module.so" }));
        let steps = merged(stack.to_vec(), &stacks, node);
        let expected = ["work", LOOP, "f", "apply", "g", "apply", "f", "apply"];
        assert_eq!(names(&steps), expected);
        let mut at = namer.path(&steps);
        let calls = namer.finish();
        let mut path = Vec::new();
        while at != 0 {
            path.push(calls[at as usize].function.as_str());
            at = calls[at as usize].parent;
        }
        // The second `f` counts as recursion.
        assert_eq!(path, ["work", LOOP, "f", "apply"]);
    }
}
