//! The walk over a function's instructions.

use crate::emit::code_buffer::{PackedState, Sink};
use crate::emit::late_loads::has_late_loads;
use crate::emit::probe::Hold;
use crate::emit::relax::{Buffer, Flex, Label, Pos};
use crate::emit::{CopiedJumpTable, EmitError, Emitted, FixupKind, Marks, SidecarRows, rows};
use crate::plan::cursor::Residencies;
use crate::plan::planned_function::Function;
use crate::x86::decode::AddressIndex;
use crate::x86::encode;
use crate::x86::encode::{Encoded, Mem};
use crate::x86::flow::is_trap;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::operands::own_destination;
use crate::x86::regs::{Gpr, RegSet, registers};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic};
use mgz_abi::address_map::{STATE_COUNTED, STATE_PASSED};
use mgz_abi::module_note::FLAVOUR_PT;
use mgz_annotations_schema::sidecar::PtWrite;
use std::cell::Cell;

/// `mov reg, mem`.
pub(crate) const MOV_LOAD: u8 = 0x8b;
/// `mov mem, reg`.
pub(crate) const MOV_STORE: u8 = 0x89;
/// Opcode of `jrcxz`; the opcodes of the branches that count are smaller.
const JRCXZ: u8 = 0xe3;
/// No instruction has this number.
pub(crate) const NO_INSN: InsnId = InsnId(u32::MAX);
/// Spill place of a hold's cursor register.
pub(crate) const PLACE_CURSOR: u8 = 0;
/// Spill place of an address register.
pub(crate) const PLACE_ADDRESS: u8 = 1;

/// Re-emits a function and computes its rows. `bytes`: the original's, from `function.range.start`
/// on. `fixed`: the code will be below 1 GiB at its link-time address. `translated`: see `abi`,
/// "Translated clones".
pub fn emit(
    function: &Function,
    bytes: &[u8],
    flavour: u32,
    fixed: bool,
    translated: bool,
) -> Result<(Emitted, SidecarRows), EmitError> {
    let pieces: std::borrow::Cow<[u32]> = match function.residencies.starts() {
        [] => function.cfg.blocks.iter().map(|b| b.insns.start).collect(),
        starts => starts.into(),
    };
    let mut memory = MEMORY.take().unwrap_or_default();
    let Memory {
        mut sink,
        left,
        starts,
        holds,
        record_at,
        ptwrite_at,
        copy_at,
    } = *memory;
    sink.begin(
        function.cfg.insns.len()
            + if function.residencies.is_empty() {
                0
            } else {
                pieces.len()
            },
    );
    let mut emitter = Emitter {
        function,
        bytes,
        pt: flavour == FLAVOUR_PT,
        fixed,
        translated,
        sink,
        piece_at: if function.residencies.is_empty() {
            AddressIndex::default()
        } else {
            AddressIndex::of(pieces.iter().map(|&p| p.into()))
        },
        pieces,
        residencies: &function.residencies,
        piece: 0,
        block: 0,
        kept: None,
        left: emptied(left),
        starts: emptied(starts),
        region: 0,
        record: 0,
        insertion: 0,
        next_record: (NO_INSN, false),
        records_before: 0,
        slots: 0,
        holds: emptied(holds),
        moved: false,
        record_at: emptied(record_at),
        stored_at: Pos::default(),
        ptwrite_at: emptied(ptwrite_at),
        copy_at: emptied(copy_at),
    };
    emitter.run()?;
    let emitted = emitter.finish()?;
    let Emitter {
        sink,
        left,
        starts,
        holds,
        record_at,
        ptwrite_at,
        copy_at,
        ..
    } = emitter;
    *memory = Memory {
        sink,
        left,
        starts,
        holds,
        record_at,
        ptwrite_at,
        copy_at,
    };
    MEMORY.set(Some(memory));
    Ok(emitted)
}

/// Buffers that grow while a function is emitted, see [`Emitter`]. The next function on the same
/// thread reuses their memory, since most functions are small.
#[derive(Default)]
struct Memory {
    sink: Sink,
    left: Vec<Option<Gpr>>,
    starts: Vec<Pos>,
    holds: Vec<Hold>,
    record_at: Vec<Pos>,
    ptwrite_at: Vec<(Pos, u32, u32)>,
    copy_at: Vec<(InsnId, Pos)>,
}

thread_local! {
    static MEMORY: Cell<Option<Box<Memory>>> = const { Cell::new(None) };
}

/// An empty list with the memory of `list`.
fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
    list.clear();
    list
}

pub(crate) struct Emitter<'a> {
    pub(crate) function: &'a Function,
    pub(crate) bytes: &'a [u8],
    pub(crate) pt: bool,
    pub(crate) fixed: bool,
    pub(crate) translated: bool,
    pub(crate) sink: Sink,
    /// First instructions of the pieces, see [`Residencies`].
    pub(crate) pieces: std::borrow::Cow<'a, [u32]>,
    /// Pieces by number of their first instruction, if there are residencies.
    pub(crate) piece_at: AddressIndex,
    /// Pieces in which a register holds the cursor. A piece's label is the label of its first
    /// instruction. `insns.len() + piece` is the label of the code before the piece that leads into
    /// or out of a residency, if there are any.
    pub(crate) residencies: &'a Residencies,
    /// Number of the current piece.
    pub(crate) piece: usize,
    /// Number of the next block.
    pub(crate) block: usize,
    /// Outside of residencies: the register that has held the cursor since the last region. It is
    /// dead in the program.
    pub(crate) kept: Option<Gpr>,
    /// Per block so far: the register that holds the cursor where control leaves the block.
    pub(crate) left: Vec<Option<Gpr>>,
    /// Per piece: the start of its code.
    pub(crate) starts: Vec<Pos>,
    /// Next region, and next record inside it.
    pub(crate) region: usize,
    pub(crate) record: usize,
    insertion: usize,
    /// Instruction of that record; true if the record comes after the instruction.
    pub(crate) next_record: (InsnId, bool),
    /// Records of earlier regions.
    pub(crate) records_before: u32,
    /// Slots of the current region written so far.
    pub(crate) slots: u32,
    pub(crate) holds: Vec<Hold>,
    /// True if the current load reads through the register that holds its address.
    pub(crate) moved: bool,
    /// Per record: the store of its id, or its first `ptwrite`.
    pub(crate) record_at: Vec<Pos>,
    /// The last store of a payload, or the end of the code that belongs to it.
    pub(crate) stored_at: Pos,
    /// Place, local record number, part.
    pub(crate) ptwrite_at: Vec<(Pos, u32, u32)>,
    /// Starts of instruction copies that come after probes instead of at their labels, in order.
    pub(crate) copy_at: Vec<(InsnId, Pos)>,
}

/// Consecutive plain instructions, which are copied at once.
#[derive(Default)]
struct Run {
    /// Number of fixed bytes in the buffer up to the run's end.
    end: u32,
    /// Number of instructions.
    count: u8,
    /// A byte for each: its length twice, in four bits each.
    tokens: u64,
    /// One byte per instruction, nonzero if it has a RIP-relative displacement.
    relative: u64,
    /// True if the last instruction writes the register that holds the cursor.
    clobbers: bool,
}

impl Run {
    /// Source: Chosen.
    const MAX_INSTRUCTIONS: usize = 8;

    /// The run from `first` on, of at most `most` instructions. It ends before one that is not
    /// plain or does not follow directly, and after one that writes a register of `kept`. Sets
    /// their labels.
    #[inline(never)]
    fn of(
        function: &Function,
        first: usize,
        most: usize,
        kept: RegSet,
        buffer: &mut Buffer,
    ) -> Run {
        let insns = &function.cfg.insns[first..first + most];
        let uses = &function.uses[first..first + most];
        let mut at = buffer.pos();
        let labels = buffer.labels_from(first);
        let mut run = Run::default();
        let mut shift = 0;
        let mut expected = insns.first().map_or(0, |insn| insn.ip);
        for ((insn, uses), label) in insns.iter().zip(uses).zip(labels) {
            if insn.ip != expected || !is_plain(insn) {
                break;
            }
            *label = at;
            at.byte += u32::from(insn.len);
            expected += u64::from(insn.len);
            run.tokens |= (17 * u64::from(insn.len)) << shift;
            run.relative |= u64::from(insn.inst.is_ip_rel_memory_operand()) << shift;
            shift += 8;
            if uses.clobber.0 & kept.0 != 0 {
                run.clobbers = true;
                break;
            }
        }
        run.count = (shift / 8) as u8;
        run.end = at.byte;
        run
    }

    /// Indices of instructions with a RIP-relative displacement.
    fn relative(&self) -> impl Iterator<Item = usize> {
        let mut left = self.relative;
        std::iter::from_fn(move || {
            let lowest = (left != 0).then(|| left.trailing_zeros() as usize / 8);
            left &= left.wrapping_sub(1);
            lowest
        })
    }
}

impl<'a> Emitter<'a> {
    fn run(&mut self) -> Result<(), EmitError> {
        let function = self.function;
        let special = special(function);
        let mut special = special.iter().copied();
        let mut next_special = special.next().unwrap_or(NO_INSN);
        self.find_record();
        let mut expected = function.range.start;
        let mut next_piece = 0;
        let mut i = 0;
        while let Some(insn) = function.cfg.insns.get(i) {
            let id = InsnId(i as u32);
            if insn.ip != expected {
                self.pass_gap(i, expected)?;
            }
            if i == next_piece {
                let piece = if i == 0 { 0 } else { self.piece + 1 };
                next_piece = self
                    .pieces
                    .get(piece + 1)
                    .map_or(function.cfg.insns.len(), |&p| p as usize);
                self.begin_piece(piece, id);
            }
            while next_special < id {
                next_special = special.next().unwrap_or(NO_INSN);
            }
            let label = self.sink.buffer.pos();
            self.moved = false;
            self.records(id, false)?;
            self.insertions(id);
            let copied = if self.moved || insn.flow != FlowControl::Next {
                0
            } else {
                self.copy_run(i, next_piece, label, next_special)?
            };
            if copied > 0 {
                i += copied;
                expected = function.cfg.insns[i - 1].end();
                self.records(InsnId(i as u32 - 1), true)?;
                continue;
            }
            expected = insn.end();
            self.sink.buffer.bind_at(Label(id.0), label);
            self.leave_residency(insn);
            if self.kept.is_some() && self.ends_keeping(insn) {
                self.forget();
            }
            self.begin_copy(id, label);
            self.instruction(id, next_special == id)?;
            let is_overlapped = insn.is_overlapped();
            if is_overlapped {
                self.sink.state(|s| s.with(STATE_PASSED));
            }
            if self
                .kept
                .is_some_and(|r| function.uses[i].clobber.contains(r))
            {
                self.forget();
            }
            self.records(id, true)?;
            if is_overlapped {
                self.pass(insn)?;
            }
            i += 1;
        }
        if let Some(last) = function.cfg.insns.len().checked_sub(1) {
            self.leave_to(last);
        }
        self.forget();
        if self.sink.current() == self.state_here() {
            self.sink.state(|_| PackedState::IDLE);
        }
        if self.region != function.plan.regions.len()
            && function.plan.regions[self.region..]
                .iter()
                .any(|r| !r.records.is_empty())
        {
            return Err(EmitError::Record);
        }
        Ok(())
    }

    /// The instruction of the next insertion.
    fn next_insertion(&self) -> InsnId {
        let next = self.function.insertions.get(self.insertion);
        next.map_or(NO_INSN, |i| i.at)
    }

    /// Emits the insertions at this instruction.
    fn insertions(&mut self, id: InsnId) {
        let function = self.function;
        while let Some(next) = function.insertions.get(self.insertion)
            && next.at == id
        {
            for piece in &next.pieces {
                match piece.target {
                    Some((at, target)) => {
                        let kind = FixupKind::Original(target);
                        self.sink.put_field(0, piece.code, at.into(), kind);
                    }
                    None => self.sink.inserted(piece.code),
                }
            }
            self.insertion += 1;
        }
    }

    /// Emits code before an instruction that does not directly follow the previous one: a jump to
    /// the bytes between them, which have no clone.
    fn pass_gap(&mut self, index: usize, end: u64) -> Result<(), EmitError> {
        let bytes = self.function.cfg.insns[index]
            .ip
            .checked_sub(end)
            .ok_or(EmitError::Encoding)?;
        if index > 0 {
            self.leave_to(index - 1);
        }
        self.sink.skip(bytes);
        Ok(())
    }

    /// Begins a piece with this first instruction.
    fn begin_piece(&mut self, piece: usize, id: InsnId) {
        let function = self.function;
        if id.0 > 0
            && function
                .cfg
                .blocks
                .get(self.block)
                .is_some_and(|b| b.insns.start == id.0)
        {
            self.end_block();
        }
        self.piece = piece;
        let Some(block) = self.enter_piece() else {
            return;
        };
        // The head of an aligned loop: a later block, or the block itself, jumps back to it.
        let is_head = || {
            function.cfg.blocks[block]
                .preds
                .iter()
                .any(|p| p.0 as usize >= block)
        };
        let after_nop = || {
            (id.0 as usize)
                .checked_sub(1)
                .is_some_and(|before| is_nop(&function.cfg.insns[before].inst))
        };
        if function.insn(id).ip.is_multiple_of(16) && after_nop() && is_head() {
            self.sink.flex(0, Flex::Align(15));
        }
    }

    /// Begins the copy of an instruction. Its label is at `label`.
    fn begin_copy(&mut self, id: InsnId, label: Pos) {
        let here = self.sink.buffer.pos();
        if here != label {
            self.copy_at.push((id, here));
        }
    }

    /// Copies plain instructions from `first` on, whose earlier records are emitted and whose label
    /// is at `label`. It stops before `end`, at the first instruction that needs more than a copy,
    /// or after a few. Returns the number copied.
    fn copy_run(
        &mut self,
        first: usize,
        end: usize,
        label: Pos,
        next_special: InsnId,
    ) -> Result<usize, EmitError> {
        let function = self.function;
        // Records and special instructions that are not ahead wrap to large distances, so they do
        // not limit the run.
        let ahead = |stop: u32| stop.wrapping_sub(first as u32) as usize;
        let (record, after) = self.next_record;
        let most = (end - first)
            .min(ahead(next_special.0))
            .min(ahead(record.0.wrapping_add(after.into())))
            .min(ahead(self.next_insertion().0))
            .min(Run::MAX_INSTRUCTIONS);
        let here = self.sink.buffer.pos();
        let kept = self.kept.map_or(RegSet::EMPTY, |r| RegSet::EMPTY.with(r));
        let run = Run::of(function, first, most, kept, &mut self.sink.buffer);
        if run.count == 0 {
            return Ok(0);
        }
        self.begin_copy(InsnId(first as u32), label);
        let insns = &function.cfg.insns[first..];
        let len = (run.end - here.byte) as usize;
        let offset = insns[0]
            .ip
            .checked_sub(function.range.start)
            .ok_or(EmitError::NoBytes)? as usize;
        let bytes = self
            .bytes
            .get(offset..)
            .filter(|bytes| bytes.len() >= len)
            .ok_or(EmitError::NoBytes)?;
        for n in run.relative() {
            let at = (self.sink.buffer.place(Label((first + n) as u32)).byte - here.byte) as usize;
            let raw = bytes
                .get(at..at + insns[n].inst.len())
                .ok_or(EmitError::NoBytes)?;
            let (field, kind) = ip_relative(&insns[n], raw)?;
            self.sink.fixup(at + field, at + raw.len(), kind);
        }
        self.sink.copy(bytes, len, run.tokens, run.count);
        self.sink.buffer.bind_at(Label(first as u32), label);
        if run.clobbers {
            self.forget();
        }
        Ok(run.count.into())
    }

    pub(crate) fn raw(&self, insn: &Insn) -> Result<&'a [u8], EmitError> {
        let start = insn
            .ip
            .checked_sub(self.function.range.start)
            .ok_or(EmitError::NoBytes)? as usize;
        self.bytes
            .get(start..start + insn.inst.len())
            .ok_or(EmitError::NoBytes)
    }

    /// Continues after an instruction whose encoding overlaps the next one: continues after both.
    fn pass(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let to = match self.function.insn_at(insn.next()).map(|id| self.way_to(id)) {
            Some((label, None)) => Ok(label),
            None if !self.residencies.needs_code(self.here(), None) => Err(insn.next()),
            _ => return Err(EmitError::Record),
        };
        self.jump(0, to);
        self.sink.state(|s| s.without(STATE_PASSED));
        Ok(())
    }

    /// If the instruction may fall through to bytes without a clone, jumps to the original there.
    fn leave_to(&mut self, index: usize) {
        let insn = &self.function.cfg.insns[index];
        let falls = !matches!(
            insn.flow,
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        );
        if falls {
            let next = insn.next();
            self.transit(self.residencies.out(self.piece), None);
            self.sink
                .put_open(0, encode::jmp32(), FixupKind::Code(next));
        }
    }

    /// True if a call returns to this instruction in a translated clone. The return looks the
    /// address up in the address map, which has only instructions of the clone.
    fn is_returned_to(&self, id: InsnId) -> bool {
        let before = (id.0 as usize)
            .checked_sub(1)
            .map(|i| &self.function.cfg.insns[i]);
        self.translated
            && before.is_some_and(|b| {
                b.next() == self.function.insn(id).ip
                    && matches!(b.flow, FlowControl::Call | FlowControl::IndirectCall)
            })
    }

    /// True if a handler may see this instruction's address, since the instruction before it is a
    /// trap, or a system call that a filter may refuse.
    fn is_behind_trap(&self, id: InsnId) -> bool {
        let before = (id.0 as usize)
            .checked_sub(1)
            .map(|before| &self.function.cfg.insns[before]);
        before.is_some_and(|b| {
            b.next() == self.function.insn(id).ip
                && (is_trap(&b.inst) || b.inst.mnemonic() == Mnemonic::Syscall)
        })
    }

    /// Emits an instruction. `is_special`: it is one of [`special`].
    fn instruction(&mut self, id: InsnId, is_special: bool) -> Result<(), EmitError> {
        let insn = self.function.insn(id);
        let inst = &insn.inst;
        let stays = self.is_returned_to(id)
            || self.is_behind_trap(id)
            || self.function.calls.markers.contains(&id);
        if is_nop(inst) && !stays {
            self.sink.skip(insn.len.into());
            return Ok(());
        }
        if is_special {
            if let Some(table) = self.function.tables.iter().position(|t| t.load == id) {
                return self.table_load(insn, table as u32);
            }
            self.hooked_call(insn);
            return Ok(());
        }
        if self.moved {
            return self.moved_load(insn, None);
        }
        let handed_over = match (self.translated, self.pt) {
            (true, _) => self.transfer(insn)?,
            (false, false) => self.indirect_transfer(insn)?,
            (false, true) => false,
        };
        if handed_over {
            return Ok(());
        }
        match insn.flow {
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend
                if is_direct(inst) =>
            {
                self.branch(insn)
            }
            _ => self.copy(insn),
        }
    }

    fn copy(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let raw = self.raw(insn)?;
        let field = if insn.inst.is_ip_rel_memory_operand() {
            Some(ip_relative(insn, raw)?)
        } else {
            None
        };
        self.sink.insn(insn.len, raw, field);
        Ok(())
    }

    /// A direct branch. Prefixes without effect on a branch (bnd, hints) are dropped.
    fn branch(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let raw = self.raw(insn)?;
        let (opcode, addr32) = match raw {
            // Most branches have no prefixes.
            [0x70..=0x7f | 0xe8 | 0xe9 | 0xeb | 0x0f, ..] => (raw, false),
            _ => {
                let prefixes = raw
                    .iter()
                    .take_while(|b| {
                        matches!(
                            b,
                            0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x3e | 0x26 | 0x36 | 0x64 | 0x65
                        )
                    })
                    .count();
                let rex = usize::from(raw.get(prefixes).is_some_and(|b| b & 0xf0 == 0x40));
                (
                    raw.get(prefixes + rex..).ok_or(EmitError::Encoding)?,
                    raw[..prefixes].contains(&0x67),
                )
            }
        };
        let target = insn.inst.near_branch_target();
        let (inside, transit) = match self.function.insn_at(target) {
            Some(id) => {
                let (label, transit) = self.way_to(id);
                (Some(label), transit)
            }
            None => (
                None,
                self.residencies
                    .needs_code(self.here(), None)
                    .then_some(None),
            ),
        };
        let outside = FixupKind::Code(target);
        match (opcode, inside) {
            ([0xe8, ..], _) => {
                self.sink
                    .put_open(insn.len, Encoded::of(&[0xe8, 0, 0, 0, 0]), outside)
            }
            ([0xe9 | 0xeb, ..], inside) => {
                if let Some(to) = transit {
                    self.transit(self.here(), to);
                }
                self.jump(insn.len, inside.ok_or(target));
                // Code after the jump is not entered from the jump's target. It starts with the
                // state here.
                let state = self.state_here();
                self.sink.state(|_| state);
            }
            (&[op @ 0x70..=0x7f, ..] | &[0x0f, op @ 0x80..=0x8f, ..], inside) => {
                self.conditional(insn.len, op & 15, inside.ok_or(target), transit);
            }
            _ if transit.is_some() => return Err(EmitError::Record),
            // (After a signal, the count is undone in the whole register, but the upper half is
            // lost here.)
            (&[0xe0..=0xe2, ..], _) if addr32 => return Err(EmitError::Encoding),
            (&[opcode @ JRCXZ, ..], Some(label)) => self.sink.flex(
                insn.len,
                Flex::Short {
                    opcode,
                    addr32,
                    label,
                },
            ),
            (&[opcode @ 0xe0..=0xe2, ..], Some(label)) => self.sink.counting(
                insn.len,
                Flex::Short {
                    opcode,
                    addr32,
                    label,
                },
            ),
            (&[opcode @ 0xe0..=0xe3, ..], None) => {
                self.sink.inserted(if addr32 {
                    Encoded::of(&[0x67, opcode, 2])
                } else {
                    Encoded::of(&[opcode, 2])
                });
                if opcode != JRCXZ {
                    self.sink.state(|s| s.with(STATE_COUNTED));
                }
                self.sink.inserted(Encoded::of(&[0xeb, 5]));
                self.sink.put_open(insn.len, encode::jmp32(), outside);
                self.sink.state(|s| s.without(STATE_COUNTED));
            }
            ([0xc7, 0xf8, ..], _) => {
                self.sink
                    .put_open(insn.len, Encoded::of(&[0xc7, 0xf8, 0, 0, 0, 0]), outside)
            }
            _ => return Err(EmitError::Encoding),
        }
        Ok(())
    }

    /// The load of a jump-table entry, from the copy.
    fn table_load(&mut self, insn: &Insn, table: u32) -> Result<(), EmitError> {
        if self.moved {
            return self.moved_load(insn, Some(table));
        }
        let raw = self.raw(insn)?;
        let at = encode::modrm_offset(raw).ok_or(EmitError::Encoding)?;
        let modrm = raw[at];
        let sib = if modrm & 7 == 4 {
            Some(*raw.get(at + 1).ok_or(EmitError::Encoding)?)
        } else {
            None
        };
        let head = at + 1 + usize::from(sib.is_some());
        let (modrm, old_len) = match (modrm >> 6, modrm & 7, sib) {
            (0, 4, Some(sib)) if sib & 7 == 5 => (modrm, 4),
            (0, 5, _) | (3, ..) => return Err(EmitError::Encoding),
            (0, ..) => (modrm | 0x80, 0),
            (1, ..) => (modrm ^ 0xc0, 1),
            _ => (modrm, 4),
        };
        let tail = raw.get(head + old_len..).ok_or(EmitError::Encoding)?;
        if insn.inst.memory_base().is_gpr32() || insn.inst.memory_index().is_gpr32() {
            return Err(EmitError::Encoding);
        }
        let disp = i32::try_from(insn.inst.memory_displacement64() as i64)
            .map_err(|_| EmitError::Encoding)?;
        if raw.len() + 4 - old_len > 15 {
            return Err(EmitError::Encoding);
        }
        let head = Encoded::of(&raw[..at]).with(modrm);
        let head = sib.map_or(head, |sib| head.with(sib));
        self.sink.put_field(
            insn.len,
            head.with32(0).with_all(tail),
            head.size().into(),
            FixupKind::Table { table, disp },
        );
        Ok(())
    }

    /// The load whose destination already holds the address: `op dst, [dst]`.
    fn moved_load(&mut self, insn: &Insn, table: Option<u32>) -> Result<(), EmitError> {
        let dst = own_destination(
            &insn.inst,
            registers(&mut InstructionInfoFactory::new(), &insn.inst),
        )
        .ok_or(EmitError::Record)?;
        let raw = self.raw(insn)?;
        let at = encode::modrm_offset(raw).ok_or(EmitError::Encoding)?;
        let tail = raw
            .get(encode::operand_end(raw, at).ok_or(EmitError::Encoding)?..)
            .ok_or(EmitError::Encoding)?;
        let head = moved_head(&raw[..at], dst).ok_or(EmitError::Encoding)?;
        if head.len() + 6 + tail.len() > 15 {
            return Err(EmitError::Encoding);
        }
        // A displacement that is filled in later always takes four bytes.
        let disp = if table.is_some() { i32::MAX } else { 0 };
        let head = encode::modrm(Encoded::of(&head), dst.0, &Mem::base(dst, disp));
        let code = head.with_all(tail);
        match table {
            Some(table) => self.sink.put_field(
                insn.len,
                code,
                usize::from(head.size()) - 4,
                FixupKind::Table { table, disp: 0 },
            ),
            None => self.sink.put(insn.len, code),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(Emitted, SidecarRows), EmitError> {
        if self.sink.current() != PackedState::IDLE {
            return Err(EmitError::Record);
        }
        let function = self.function;
        let finished = self.sink.finish();
        let resolved = &self.sink.buffer;
        let tables = function.tables.iter().map(|t| {
            let lost = |&a: &u64| function.range.contains(&a) && function.insn_at(a).is_none();
            if t.targets.iter().any(lost) {
                return Err(EmitError::Record);
            }
            Ok(CopiedJumpTable {
                original: t.table,
                form: t.form,
                targets: t.targets.clone(),
            })
        });
        let tables: Vec<CopiedJumpTable> = tables.collect::<Result<_, EmitError>>()?;
        let ptwrites = self
            .ptwrite_at
            .iter()
            .map(|&(p, record, part)| PtWrite {
                ip: resolved.offset(p).into(),
                record,
                part,
            })
            .collect();
        let rows =
            rows::sidecar_rows(function, &self.record_at, &self.copy_at, resolved, ptwrites)?;
        let begins = self.begins();
        let resolved = &self.sink.buffer;
        let originals = function
            .cfg
            .insns
            .iter()
            .map(|insn| (insn.ip - function.range.start) as u32);
        let marks = Marks::new(
            originals.zip(resolved.first_labels(function.cfg.insns.len())),
            begins,
        );
        let patches = patches(function, &marks);
        let mut entered: Vec<u64> = patches.iter().map(|p| p.0).collect();
        entered.sort_unstable();
        let late_loads = has_late_loads(function, &entered, self.pt);
        let emitted = Emitted {
            range: function.range.clone(),
            fixups: finished.fixups,
            tables,
            marks,
            patches,
            late_loads,
            calls: function
                .calls
                .hooks
                .iter()
                .map(|&id| function.cfg.insns[id.0 as usize].ip)
                .collect(),
            stream: finished.stream,
            states: finished.states,
            align: if finished.is_aligned { 16 } else { 1 },
            len: finished.code.len() as u32,
            code: finished.code,
        };
        Ok((emitted, rows))
    }

    /// Starts of the code on edges into pieces, see [`Marks::new`]. If that code comes from no
    /// residency, the piece's label moves to its start.
    fn begins(&mut self) -> Vec<(u32, u32)> {
        let buffer = &mut self.sink.buffer;
        let mut begins = Vec::new();
        for (b, (&first, &begin)) in self.pieces.iter().zip(&self.starts).enumerate() {
            let label = Label(first);
            if begin == buffer.place(label) {
                continue;
            }
            // Control from outside comes from no residency.
            if self.residencies.of(b).is_some() && self.residencies.before(b) == Some(None) {
                buffer.bind_at(label, begin);
            } else if buffer.offset(begin) != buffer.offset_of(label) {
                begins.push((first, buffer.offset(begin)));
            }
        }
        begins
    }
}

/// Instructions that are always replaced, in order.
fn special(function: &Function) -> Vec<InsnId> {
    let mut all: Vec<InsnId> = function
        .tables
        .iter()
        .map(|t| t.load)
        .chain(function.calls.hooks.iter().copied())
        .collect();
    all.sort_unstable();
    all
}

/// The RIP-relative displacement of an instruction that has one: the offset of its field, and its
/// kind.
fn ip_relative(insn: &Insn, raw: &[u8]) -> Result<(usize, FixupKind), EmitError> {
    let field = encode::modrm_offset(raw).ok_or(EmitError::Encoding)? + 1;
    let disp = raw.get(field..field + 4).ok_or(EmitError::Encoding)?;
    let disp = i32::from_le_bytes([disp[0], disp[1], disp[2], disp[3]]);
    let target = insn.inst.ip_rel_memory_address();
    let read = insn.next().wrapping_add_signed(disp.into());
    if raw[field - 1] & 0xc7 != 5 || read != target {
        return Err(EmitError::Encoding);
    }
    Ok((field, FixupKind::Original(target)))
}

/// True if the clone of an instruction, besides its records, is the instruction itself. Only a
/// RIP-relative displacement may differ. The instruction must not be one of [`special`].
fn is_plain(insn: &Insn) -> bool {
    insn.flow == FlowControl::Next
        && !insn.is_overlapped()
        && !matches!(
            insn.inst.mnemonic(),
            Mnemonic::Nop | Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Hlt
        )
}

/// True if the instruction is a no-operation. `endbr64` and `pause` have mnemonics of their own.
fn is_nop(inst: &Instruction) -> bool {
    inst.mnemonic() == Mnemonic::Nop
}

fn is_direct(inst: &Instruction) -> bool {
    inst.op_count() > 0
        && matches!(
            inst.op0_kind(),
            iced_x86::OpKind::NearBranch64
                | iced_x86::OpKind::NearBranch32
                | iced_x86::OpKind::NearBranch16
        )
}

/// Possible jumps from the original into the clone: at the function's start, at blocks entered from
/// outside, and at possible targets of unresolved indirect jumps. A jump replaces five bytes of one
/// block, so that no branch can reach its middle. An `endbr64` in front stays.
fn patches(function: &Function, marks: &Marks) -> Vec<(u64, u32)> {
    let start = function.range.start;
    let mut wanted: Vec<u64> = vec![start];
    wanted.extend(
        function
            .cfg
            .blocks
            .iter()
            .filter(|b| b.external_entry)
            .map(|b| function.cfg.insns[b.insns.start as usize].ip),
    );
    wanted.extend_from_slice(&function.patching.landings);
    wanted.sort_unstable();
    wanted.dedup();
    let behind_call = |&id: &InsnId| {
        let insn = function.insn(id);
        let is_new = wanted.binary_search(&insn.ip).is_err()
            && insn.inst.mnemonic() != Mnemonic::Endbr64
            && function.may_patch(id);
        is_new.then(|| (insn.ip, marks.entry_of_instruction(id.0 as usize)))
    };
    let mut patches: Vec<(u64, u32)> = Vec::with_capacity(wanted.len());
    patches.extend(function.calls.returned_to.iter().filter_map(behind_call));
    for at in wanted {
        let Some(block) = function.block_at(at) else {
            continue;
        };
        let insns = function.cfg.blocks[block.0 as usize].insns.clone();
        let mut first = insns.start as usize;
        if function.cfg.insns[first].inst.mnemonic() == Mnemonic::Endbr64 {
            first += 1;
        }
        if first >= insns.end as usize {
            continue;
        }
        let at = function.cfg.insns[first].ip;
        if function.may_patch(InsnId(first as u32)) {
            // Code into a residency comes before the `endbr64`, which has no effect.
            let piece = function
                .residencies
                .starts()
                .binary_search(&insns.start)
                .unwrap_or(block.0 as usize);
            let into = if function.residencies.of(piece).is_some() {
                insns.start as usize
            } else {
                first
            };
            patches.push((at, marks.entry_of_instruction(into)));
        }
    }
    patches
}

/// The bytes before ModRM of `op dst, [dst]`, from those of `op dst, [anything]`: segment and
/// address-size prefixes are removed, and the base's extension bit becomes the register's.
fn moved_head(raw: &[u8], dst: Gpr) -> Option<Vec<u8>> {
    let prefixes = raw
        .iter()
        .take_while(|b| {
            matches!(
                b,
                0x66 | 0x67 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65
            )
        })
        .count();
    let mut head: Vec<u8> = raw[..prefixes]
        .iter()
        .copied()
        .filter(|b| matches!(b, 0x66 | 0xf2 | 0xf3))
        .collect();
    let high = dst.0 >= 8;
    match raw[prefixes..] {
        [0xc5, p, opcode] => head.extend_from_slice(&[
            0xc4,
            p & 0x80 | 0x61 & if high { 0xdf } else { 0xff },
            p & 0x7f,
            opcode,
        ]),
        [0xc4, p, q, opcode] => head.extend_from_slice(&[
            0xc4,
            p & 0x9f | 0x40 | if high { 0 } else { 0x20 },
            q,
            opcode,
        ]),
        [0x62 | 0xc4 | 0xc5 | 0x8f, ..] => return None,
        ref rest => {
            let (rex, opcode) = match rest.split_first() {
                Some((&first, rest)) if first & 0xf0 == 0x40 => (first, rest),
                _ => (0x40, rest),
            };
            let rex = rex & 0x48 | if high { 5 } else { 0 };
            if rex != 0x40 {
                head.push(rex);
            }
            head.extend_from_slice(opcode);
        }
    }
    Some(head)
}
