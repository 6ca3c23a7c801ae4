//! Instructions as text.

use iced_x86::{Formatter, GasFormatter, Instruction};

/// An instruction in the syntax of the GNU assembler.
pub(super) fn text(inst: &Instruction) -> String {
    let mut formatter = GasFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(inst, &mut text);
    text
}
