//! Entries of procedure linkage tables, recognized by their effect: each jumps to the address in a
//! word of the global offset table.
//!
//! Linkers write them in many forms: with `endbr64`, `bnd` or neither, with a number in r11 for the
//! binding code (mold), with a return instead of the jump (retpolines), in one piece or with a part
//! that all entries share. So an entry is followed instruction by instruction, as long as it has no
//! other effect than the jump. It changes neither stack, flags nor memory, and no register except
//! r11.

/// Maximum number of instructions of an entry, including shared parts. (The longest known, a
/// retpoline that is bound at start, has five.)
const MAX_STEPS: usize = 12;

/// Content of r11 after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubScratch {
    /// The previous value.
    Untouched,
    /// This number.
    Number(u64),
    /// The word's value, which is the target of the entry.
    Target,
}

/// An entry of a linkage table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportStub {
    /// The address of the word that holds the target.
    pub word: u64,
    /// Use of r11 by the entry.
    pub scratch: StubScratch,
    /// End of the instruction that reads the word. Its last four bytes are the displacement.
    pub reader_end: u64,
    /// The entry jumps through the word without loading it first.
    pub direct: bool,
}

/// Content of r11 while the entry is followed.
#[derive(Clone, Copy)]
enum Scratch {
    Untouched,
    Number(u64),
    /// The word at this address, read by an instruction that ends at the second address.
    Word(u64, u64),
}

/// Follows the code at `entry`. `byte` returns the code at an address; it is called only for bytes
/// of instructions that control reaches.
pub fn follow_stub(entry: u64, byte: impl Fn(u64) -> Option<u8>) -> Option<ImportStub> {
    let mut code = Code { at: entry, byte };
    let mut scratch = Scratch::Untouched;
    // The entry has pushed a return address by a call, and r11 has replaced it.
    let (mut pushed, mut replaced) = (false, false);
    for _ in 0..MAX_STEPS {
        match code.step()? {
            Step::Nothing => {}
            Step::Jump(target) => code.at = target,
            Step::Call(target) if !pushed => {
                pushed = true;
                code.at = target;
            }
            Step::Number(number) => scratch = Scratch::Number(number),
            Step::Load(word) => scratch = Scratch::Word(word, code.at),
            Step::Replace if pushed => replaced = true,
            Step::JumpThrough(word) if !pushed => {
                return Some(ImportStub {
                    word,
                    scratch: match scratch {
                        Scratch::Untouched => StubScratch::Untouched,
                        Scratch::Number(number) => StubScratch::Number(number),
                        // (A second word.)
                        Scratch::Word(..) => return None,
                    },
                    reader_end: code.at,
                    direct: true,
                });
            }
            Step::Return if !replaced => return None,
            Step::JumpScratch if pushed => return None,
            Step::Return | Step::JumpScratch => {
                let Scratch::Word(word, reader_end) = scratch else {
                    return None;
                };
                return Some(ImportStub {
                    word,
                    scratch: StubScratch::Target,
                    reader_end,
                    direct: false,
                });
            }
            Step::Call(_) | Step::Replace | Step::JumpThrough(_) => return None,
        }
    }
    None
}

/// Effect of one instruction of an entry.
enum Step {
    Nothing,
    Jump(u64),
    Call(u64),
    /// r11 becomes a number.
    Number(u64),
    /// r11 becomes the word at this address.
    Load(u64),
    /// r11 replaces the value pushed last.
    Replace,
    /// A jump to the address in the word at this address.
    JumpThrough(u64),
    /// A jump to r11.
    JumpScratch,
    Return,
}

struct Code<F> {
    at: u64,
    byte: F,
}

impl<F: Fn(u64) -> Option<u8>> Code<F> {
    fn next(&mut self) -> Option<u8> {
        let byte = (self.byte)(self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(byte)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.next()?;
        }
        Some(bytes)
    }

    /// Target of a 32-bit distance.
    fn target(&mut self) -> Option<u64> {
        let distance = i32::from_le_bytes(self.number()?);
        Some(self.at.wrapping_add_signed(distance.into()))
    }

    /// Decodes the instruction at [`Code::at`], if an entry may have it, and continues behind it.
    fn step(&mut self) -> Option<Step> {
        match self.next()? {
            0x90 => Some(Step::Nothing),
            0xf3 => (self.number()? == [0x0f, 0x1e, 0xfa]).then_some(Step::Nothing),
            // `bnd` and `notrack`.
            0xf2 | 0x3e => match self.next()? {
                first @ (0xe8 | 0xe9 | 0xc3 | 0xff) => self.transfer(first),
                _ => None,
            },
            0x66 | 0x2e => self.padding(),
            0x0f => self.long_padding(),
            0x41 => match self.next()? {
                0xbb => Some(Step::Number(u32::from_le_bytes(self.number()?).into())),
                0xff => (self.next()? == 0xe3).then_some(Step::JumpScratch),
                _ => None,
            },
            0x49 => match self.next()? {
                0xbb => Some(Step::Number(u64::from_le_bytes(self.number()?))),
                0xc7 if self.next()? == 0xc3 => {
                    let number = i32::from_le_bytes(self.number()?);
                    Some(Step::Number(i64::from(number) as u64))
                }
                _ => None,
            },
            0x4c => match self.number()? {
                [0x8b, 0x1d] => Some(Step::Load(self.target()?)),
                [0x89, 0x1c] => (self.next()? == 0x24).then_some(Step::Replace),
                _ => None,
            },
            first => self.transfer(first),
        }
    }

    /// A jump, a call or a return.
    fn transfer(&mut self, first: u8) -> Option<Step> {
        match first {
            0xe8 => Some(Step::Call(self.target()?)),
            0xe9 => Some(Step::Jump(self.target()?)),
            0xeb => {
                let distance = self.next()? as i8;
                Some(Step::Jump(self.at.wrapping_add_signed(distance.into())))
            }
            0xc3 => Some(Step::Return),
            0xff if self.next()? == 0x25 => Some(Step::JumpThrough(self.target()?)),
            _ => None,
        }
    }

    /// Padding, behind its first prefix.
    fn padding(&mut self) -> Option<Step> {
        /// Maximum number of prefixes of an instruction.
        const MAX_PREFIXES: usize = 12;
        for _ in 0..MAX_PREFIXES {
            match self.next()? {
                0x66 | 0x2e => {}
                0x90 => return Some(Step::Nothing),
                0x0f => return self.long_padding(),
                _ => return None,
            }
        }
        None
    }

    /// Padding of several bytes, behind its first opcode byte.
    fn long_padding(&mut self) -> Option<Step> {
        if self.next()? != 0x1f {
            return None;
        }
        let modrm = self.next()?;
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let base = match rm {
            4 if mode != 3 => self.next()? & 7,
            _ => rm,
        };
        let distance = match mode {
            1 => 1,
            2 => 4,
            0 if base == 5 => 4,
            _ => 0,
        };
        for _ in 0..distance {
            self.next()?;
        }
        Some(Step::Nothing)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn follow(code: &[u8], entry: u64) -> Option<ImportStub> {
        follow_stub(entry, |at| {
            code.get(usize::try_from(at.checked_sub(0x1000)?).ok()?)
                .copied()
        })
    }

    fn word(code: &[u8], entry: u64) -> Option<(u64, StubScratch)> {
        follow(code, entry).map(|stub| (stub.word, stub.scratch))
    }

    #[test]
    fn entries_of_one_piece() {
        use StubScratch::*;
        // jmp [rip+0x2fe2]; push 0; jmp …
        let lazy = [
            0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
        ];
        assert_eq!(word(&lazy, 0x1000), Some((0x1006 + 0x2fe2, Untouched)));
        // endbr64; jmp [rip+8]
        let sec = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 8, 0, 0, 0];
        assert_eq!(word(&sec, 0x1000), Some((0x100a + 8, Untouched)));
        // endbr64; bnd jmp [rip+8]
        let bnd = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 8, 0, 0, 0];
        assert_eq!(word(&bnd, 0x1000), Some((0x100b + 8, Untouched)));
        // mold: endbr64; mov r11d, 5; jmp [rip+8]
        let mold = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 5, 0, 0, 0, 0xff, 0x25, 8, 0, 0, 0,
        ];
        let found = follow(&mold, 0x1000).unwrap();
        assert_eq!((found.word, found.scratch), (0x1010 + 8, Number(5)));
        assert!(found.reader_end == 0x1010 && found.direct);
        // nopw [rax+rax+0]; mov r11, -1; xchg ax, ax; jmp [rip+8]
        let padded = [
            0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x49, 0xc7, 0xc3, 0xff, 0xff, 0xff, 0xff, 0x66, 0x90,
            0xff, 0x25, 8, 0, 0, 0,
        ];
        assert_eq!(word(&padded, 0x1000), Some((0x1015 + 8, Number(!0))));
        // mov r11, [rip+8]; jmp r11
        let loaded = [0x4c, 0x8b, 0x1d, 8, 0, 0, 0, 0x41, 0xff, 0xe3];
        assert_eq!(word(&loaded, 0x1000), Some((0x1007 + 8, Target)));
    }

    #[test]
    fn entries_that_return_to_where_they_lead() {
        // lld, bound at start. The shared part: call 1010; pause; lfence; jmp; …; 1010: mov [rsp],
        // r11; ret
        let mut code = std::vec![
            0xe8, 0x0b, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9, 0xcc, 0xcc, 0xcc, 0xcc,
            0x4c, 0x89, 0x1c, 0x24, 0xc3,
        ];
        code.resize(0x20, 0xcc);
        // An entry: mov r11, [rip+8]; jmp 1000
        code.extend([
            0x4c, 0x8b, 0x1d, 8, 0, 0, 0, 0xe9, 0xd4, 0xff, 0xff, 0xff, 0xcc, 0xcc, 0xcc, 0xcc,
        ]);
        // An entry with lazy binding: mov r11, [rip+8]; call 1010; …
        code.extend([0x4c, 0x8b, 0x1d, 8, 0, 0, 0, 0xe8, 0xd4, 0xff, 0xff, 0xff]);
        assert_eq!(word(&code, 0x1020), Some((0x1027 + 8, StubScratch::Target)));
        let late = follow(&code, 0x1030).unwrap();
        assert_eq!((late.word, late.reader_end), (0x1037 + 8, 0x1037));
        assert!(!late.direct);
        // The shared part alone jumps to any value of r11.
        assert_eq!(word(&code, 0x1000), None);
        assert_eq!(word(&code, 0x1010), None);
    }

    #[test]
    fn what_is_no_entry() {
        // push [rip+8]; jmp [rip+16]: the table's head.
        let head = [0xff, 0x35, 8, 0, 0, 0, 0xff, 0x25, 16, 0, 0, 0];
        assert_eq!(word(&head, 0x1000), None);
        // mold's: endbr64; push r11; push [rip+8]; jmp [rip+16]
        let head = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35, 8, 0, 0, 0, 0xff, 0x25, 16, 0, 0, 0,
        ];
        assert_eq!(word(&head, 0x1000), None);
        // endbr64; push 1; jmp …: the code that binds at the first call.
        let binds = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        assert_eq!(word(&binds, 0x1000), None);
        // Truncated; at another address; mov eax, 1 first; jmp [rax+8]; a load of r10; call
        // [rip+8]; jmp $
        assert_eq!(word(&[0xff, 0x25, 8], 0x1000), None);
        assert_eq!(word(&[0xff, 0x25, 8, 0, 0, 0], 0x2000), None);
        assert_eq!(
            word(&[0xb8, 1, 0, 0, 0, 0xff, 0x25, 8, 0, 0, 0], 0x1000),
            None
        );
        assert_eq!(word(&[0xff, 0x60, 8], 0x1000), None);
        assert_eq!(
            word(
                &[0x4c, 0x8b, 0x15, 8, 0, 0, 0, 0xff, 0x25, 8, 0, 0, 0],
                0x1000
            ),
            None
        );
        assert_eq!(word(&[0xff, 0x15, 8, 0, 0, 0], 0x1000), None);
        assert_eq!(word(&[0xeb, 0xfe], 0x1000), None);
        // mov r11, [rip+8]; call 100c; ret: r11 does not replace the pushed value.
        let calls = [0x4c, 0x8b, 0x1d, 8, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(word(&calls, 0x1000), None);
    }
}
