//! The table `rows`: the rows of a trace as a virtual table. A row group is decoded when it is
//! reached; only the requested columns are.

use crate::data::object_map::{Recent, Resolver, UNKNOWN};
use crate::input::Trace;
use rusqlite::types::Null;
use rusqlite::vtab::{
    Context, Filters, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
};
use rusqlite::{Connection, Error, ffi};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

/// Columns that are in the files, in their order.
pub const STORED_COLUMNS: [&str; 13] = [
    "process",
    "thread",
    "seq",
    "sample",
    "time_ns",
    "module",
    "ip",
    "site",
    "address",
    "size",
    "class",
    "store",
    "implied_const",
];
/// Columns after these: names.
const FUNCTION_COLUMN: usize = 13;
const MODULE_NAME_COLUMN: usize = 14;
const FILE_COLUMN: usize = 15;
const LINE_COLUMN: usize = 16;
const OBJECT_COLUMN: usize = 17;
const SCHEMA: &CStr = c"CREATE TABLE rows (process INT, thread INT, seq INT, sample INT, time_ns INT, module INT, ip INT, site INT, address INT, size INT, class INT, store INT, implied_const INT, function TEXT, module_name TEXT, file TEXT, line INT, object TEXT)";
/// Number of rows that the planner assumes.
const ASSUMED_ROWS: i64 = 1 << 40;

/// Data of the table.
pub struct RowTableSource {
    /// The trace.
    pub trace: Trace,
    /// Its objects.
    pub objects: Option<Resolver>,
}

#[repr(C)]
struct RowTable {
    /// The database's part, which must be first.
    base: ffi::sqlite3_vtab,
    source: Arc<RowTableSource>,
}

// SAFETY: `base` is the first field of a struct with C's layout.
unsafe impl<'vtab> VTab<'vtab> for RowTable {
    type Aux = Arc<RowTableSource>;
    type Cursor = RowCursor<'vtab>;

    fn connect(
        connection: &mut VTabConnection,
        source: Option<&Arc<RowTableSource>>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _arguments: &[&[u8]],
    ) -> rusqlite::Result<(Cow<'static, CStr>, RowTable)> {
        connection.config(VTabConfig::Innocuous)?;
        let source = source
            .ok_or_else(|| Error::ModuleError("no trace".into()))?
            .clone();
        let base = ffi::sqlite3_vtab::default();
        Ok((Cow::Borrowed(SCHEMA), RowTable { base, source }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> rusqlite::Result<bool> {
        let used = c_int::try_from(info.col_used() & 0x3_ffff).unwrap_or(c_int::MAX);
        info.set_idx_num(used);
        info.set_estimated_rows(ASSUMED_ROWS);
        info.set_estimated_cost(ASSUMED_ROWS as f64);
        Ok(true)
    }

    fn open(&'vtab mut self) -> rusqlite::Result<RowCursor<'vtab>> {
        Ok(RowCursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            source: self.source.clone(),
            used: 0,
            piece: 0,
            row: 0,
            before: 0,
            length: 0,
            columns: Vec::new(),
            recent: RefCell::default(),
            table: PhantomData,
        })
    }
}

#[repr(C)]
struct RowCursor<'vtab> {
    /// The database's part, which must be first.
    base: ffi::sqlite3_vtab_cursor,
    source: Arc<RowTableSource>,
    /// One bit for each requested column.
    used: u32,
    /// The row group after the decoded one.
    piece: usize,
    row: usize,
    /// Number of rows in the previous groups.
    before: i64,
    length: usize,
    /// Columns of [`STORED_COLUMNS`]; empty if not requested.
    columns: Vec<Vec<u64>>,
    recent: RefCell<Recent>,
    table: PhantomData<&'vtab RowTable>,
}

impl RowCursor<'_> {
    fn uses(&self, column: usize) -> bool {
        self.used >> column & 1 == 1
    }

    /// Decodes row groups until there is a row, or none is left.
    fn fill(&mut self) -> rusqlite::Result<()> {
        while self.row >= self.length {
            self.before += self.length as i64;
            (self.row, self.length) = (0, 0);
            let trace = &self.source.trace;
            let Some(rows) = trace.stored_rows(self.piece) else {
                return Ok(());
            };
            let names = self.uses(FUNCTION_COLUMN)
                || self.uses(MODULE_NAME_COLUMN)
                || self.uses(FILE_COLUMN)
                || self.uses(LINE_COLUMN);
            let wanted = |at: usize| {
                let name = STORED_COLUMNS[at];
                self.uses(at)
                    || names && matches!(name, "module" | "site")
                    || self.uses(OBJECT_COLUMN) && matches!(name, "process" | "address" | "time_ns")
            };
            self.columns = (0..STORED_COLUMNS.len())
                .map(|at| match wanted(at) {
                    true => trace.stored_column(self.piece, STORED_COLUMNS[at]),
                    false => Ok(Vec::new()),
                })
                .collect::<Result<_, _>>()
                .map_err(Error::ModuleError)?;
            self.length = rows;
            self.piece += 1;
        }
        Ok(())
    }

    fn stored(&self, column: usize) -> u64 {
        self.columns
            .get(column)
            .and_then(|c| c.get(self.row))
            .copied()
            .unwrap_or(0)
    }

    /// The line piece of the row.
    fn code(&self) -> usize {
        let (module, site) = (self.stored(5) as u16, self.stored(7) as usize);
        let (sites, unknown, _) = self.source.trace.code.pieces_of(module);
        sites.get(site).copied().unwrap_or(unknown) as usize
    }
}

// SAFETY: `base` is the first field of a struct with C's layout.
unsafe impl VTabCursor for RowCursor<'_> {
    fn filter(&mut self, used: c_int, _: Option<&str>, _: &Filters<'_>) -> rusqlite::Result<()> {
        self.used = used as u32;
        (self.piece, self.row, self.length, self.before) = (0, 0, 0, 0);
        self.fill()
    }

    fn next(&mut self) -> rusqlite::Result<()> {
        self.row += 1;
        self.fill()
    }

    fn eof(&self) -> bool {
        self.row >= self.length
    }

    fn column(&self, context: &mut Context, column: c_int) -> rusqlite::Result<()> {
        let column = column as usize;
        if column < STORED_COLUMNS.len() {
            // User addresses fit into a signed number. The kernel's addresses are above, and have
            // no loads here.
            return context.set_result(self.stored(column) as i64);
        }
        let code = &self.source.trace.code;
        if column == OBJECT_COLUMN {
            let Some(objects) = &self.source.objects else {
                return context.set_result(Null);
            };
            let (process, address, time) = (self.stored(0) as u32, self.stored(8), self.stored(4));
            let found = objects.find_recent(&mut self.recent.borrow_mut(), process, address, time);
            return match objects
                .objects
                .get(found as usize)
                .filter(|_| found != UNKNOWN)
            {
                Some(object) if object.name.is_empty() => context.set_result(object.kind.as_str()),
                Some(object) => context.set_result(object.name.as_str()),
                None => context.set_result(Null),
            };
        }
        let piece = &code.pieces[self.code()];
        let (function, line) = (
            &code.functions[piece.function as usize],
            &code.lines[piece.line as usize],
        );
        match column {
            FUNCTION_COLUMN => context.set_result(function.function.as_str()),
            MODULE_NAME_COLUMN => context.set_result(function.module.as_str()),
            FILE_COLUMN => context.set_result(line.file.as_str()),
            _ => context.set_result(i64::from(line.line)),
        }
    }

    fn rowid(&self) -> rusqlite::Result<i64> {
        Ok(self.before + self.row as i64)
    }
}

/// Adds the table to a database.
pub fn add_row_table(database: &Connection, source: Arc<RowTableSource>) -> rusqlite::Result<()> {
    const MODULE: Module<'static, RowTable> = Module::eponymous_only_module();
    database.create_module(c"rows", &MODULE, Some(source))
}
