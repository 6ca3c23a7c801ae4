pub mod address_map;
pub mod heap_log;
pub mod module_note;
pub mod probe;
pub mod shared_memory;
pub mod slot;
