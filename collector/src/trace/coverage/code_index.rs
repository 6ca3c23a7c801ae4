//! The file at an address of a process.

use crate::trace::coverage::code::Code;
use mgz_generated_code::address_paint::AddressPaint;
use std::collections::BTreeSet;
use std::collections::HashMap;

/// The code that was seen in processes, by address.
pub(super) struct CodeIndex<'a> {
    codes: Vec<&'a Code>,
    own: HashMap<u32, AddressPaint>,
    /// Code of any process, for children whose mappings were not read: they have their parent's.
    any: AddressPaint,
}

impl<'a> CodeIndex<'a> {
    pub(super) fn new(codes: &'a BTreeSet<Code>) -> CodeIndex<'a> {
        let codes: Vec<&Code> = codes.iter().collect();
        let mut own: HashMap<u32, AddressPaint> = HashMap::new();
        let mut any = AddressPaint::default();
        // Earlier entries win where code overlaps.
        for (number, code) in codes.iter().enumerate().rev() {
            let number = number as u32;
            let paint = own.entry(code.process).or_default();
            paint.paint(code.start, code.end, number);
            any.paint(code.start, code.end, number);
        }
        CodeIndex { codes, own, any }
    }

    /// The path of the code at an address: empty for code of no file. None if no code was seen
    /// there.
    pub(super) fn path(&self, process: u32, address: u64) -> Option<&'a str> {
        let number = match self.own.get(&process) {
            Some(own) => own.at(address),
            None => self.any.at(address),
        };
        let code = self.codes.get(number? as usize)?;
        Some(code.path.as_str())
    }
}
