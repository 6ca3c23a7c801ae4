//! Calls of functions outside of the file.

use crate::program::{Import, Input};
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use iced_x86::FlowControl;

/// Convention of a call, if it is known. The callee must be outside of this file and must return.
/// (Hand-written code may preserve registers on all paths except those that end in a callee without
/// return.)
pub fn imported(input: &Input, insn: &Insn) -> Option<Import> {
    let through = match insn.flow {
        FlowControl::Call => direct_target(&insn.inst),
        FlowControl::IndirectCall if insn.inst.is_ip_rel_memory_operand() => {
            Some(insn.inst.ip_rel_memory_address())
        }
        _ => None,
    }?;
    let import = input.imported.get(&through).copied();
    import.filter(|_| !input.no_return.contains(&through))
}
