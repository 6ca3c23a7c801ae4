//! Single instructions: decoding, operands, effects, encoding.

pub mod decode;
pub mod effects;
pub mod encode;
pub mod flow;
pub mod insn;
pub mod length_decoder;
pub mod operand_info;
pub mod operands;
pub mod regs;
