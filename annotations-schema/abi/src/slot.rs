//! Slots of a ring: records, pairs of records, markers.

/// Size of one slot, bytes.
pub const SLOT_BYTES: usize = 16;
/// Offset of the payload inside a slot.
pub const SLOT_PAYLOAD: usize = 0;
/// Offset of the second payload in a slot that two records share ([`ID_PAIR`]). Eight bytes are
/// written there, after the first payload, either directly or some instructions later
/// ([`STATE_HALF`](crate::address_map::STATE_HALF)), and before the id: the low 48 bits of each
/// payload remain.
pub const SLOT_SECOND: usize = 6;
/// Offset of the record id inside a slot: the last four bytes, which are written last.
pub const SLOT_ID: usize = 12;
/// Set in the id of a slot that the record with this id shares with the next one. User addresses
/// have no more than 47 bits, and sums of registers are addresses modulo 2⁴⁸.
pub const ID_PAIR: u32 = 1 << 31;
/// Bits of a payload in a slot that two records share.
pub const PAIR_BITS: u32 = 48;
/// Record ids of modules are below this: with [`ID_PAIR`] they must not be markers.
pub const ID_LIMIT: u32 = MARK_FIRST & !ID_PAIR;
/// Upper bound of the slots of one region, so that a ring can be sized to hold a region. (It has up
/// to twice as many records, since two may share a slot.)
pub const MAX_REGION_SLOTS: usize = 64;

/// A slot as it is stored in a ring.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSlot {
    /// Value stored by the probe. If two records share the slot: the low 48 bits, and 16 bits of
    /// the second payload.
    pub payload: u64,
    /// The other 32 bits of the second payload; in markers the same as [`Slot::aux`]; else
    /// unchanged.
    pub aux: u32,
    /// [`Slot::id`], perhaps with [`ID_PAIR`].
    pub id: u32,
}

/// Payload from its low [`PAIR_BITS`] bits.
const fn extended(bits: u64) -> u64 {
    ((bits << (64 - PAIR_BITS)) as i64 >> (64 - PAIR_BITS)) as u64
}

impl RingSlot {
    /// True if two records share the slot.
    #[inline(always)]
    pub const fn is_pair(&self) -> bool {
        self.id & ID_PAIR != 0 && self.id < MARK_FIRST
    }

    /// The first record's payload.
    #[inline(always)]
    pub const fn first(&self) -> u64 {
        if self.is_pair() {
            extended(self.payload)
        } else {
            self.payload
        }
    }

    /// The first record's payload, if two share the slot. The second payload and the id need not be
    /// written yet.
    #[inline(always)]
    pub const fn short(&self) -> u64 {
        extended(self.payload)
    }

    /// The second record's payload, if two share the slot.
    #[inline(always)]
    pub const fn second(&self) -> u64 {
        extended(self.payload >> PAIR_BITS | (self.aux as u64) << (64 - PAIR_BITS))
    }
}

/// One record or marker. (A slot of a ring is a [`RingSlot`], which holds one or two of these.)
///
/// Records of several slots (PT flavour only) have `payload` and `id` in the first; the others are
/// 16 raw bytes each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Value stored by the probe: a register or an effective address.
    pub payload: u64,
    /// [`ModuleNote::id_first`](crate::module_note::ModuleNote::id_first) plus the module's record
    /// number, or one of the `MARK_*` ids.
    pub id: u32,
    /// Zero in records; the signal number in [`MARK_SIGNAL_ENTER`].
    pub aux: u32,
}

/// Ids from here on are markers that the runtime writes; modules never use them.
pub const MARK_FIRST: u32 = 0xffff_ff00;
/// A handler of the program starts. Payload: run-time address of the interrupted original
/// instruction, i.e. the next one to run. `aux`: see [`mark_aux`]. The completed slots of the
/// interrupted region come before the marker.
pub const MARK_SIGNAL_ENTER: u32 = MARK_FIRST;
/// The handler returned and the interrupted region continues. Payload: that of the corresponding
/// [`MARK_SIGNAL_ENTER`] (handlers between them were left by a jump), or 0 for the last one.
pub const MARK_SIGNAL_RETURN: u32 = MARK_FIRST + 1;
/// The current region was given up (context changed by the handler, thread killed). Payload as in
/// the corresponding [`MARK_SIGNAL_ENTER`]; if there is none (a thread was killed), the thread's
/// position.
pub const MARK_CUT: u32 = MARK_FIRST + 2;

/// The next record repeats an earlier one, or its payload is not known: skip it. (A slot that two
/// records share is completed after a handler that ran between the two, or by a thread that entered
/// the clone there.)
pub const MARK_REPEAT: u32 = MARK_FIRST + 3;

/// Time of an event, such as the begin or end of a heap block. Payload: CLOCK_MONOTONIC, ns. No
/// region is open. Only in `full`.
pub const MARK_TIME: u32 = MARK_FIRST + 4;

/// `aux` of [`MARK_SIGNAL_ENTER`] and [`MARK_CUT`]: the signal number in the low 7 bits; above them
/// the low 25 bits of the *link-time clone* address that was interrupted, or 0 if the thread was
/// not in a clone. The clone address shows if a record at the interrupted instruction was already
/// written.
pub const fn mark_aux(signal: u32, clone_ip: u64) -> u32 {
    (signal & 0x7f) | (clone_ip as u32) << 7
}
