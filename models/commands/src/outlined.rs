//! Functions that compilers make of parallel regions.

/// True if a function is an outlined parallel region.
pub fn is_outlined(name: &str) -> bool {
    name.contains("._omp_fn.") || name.contains("omp_outlined")
}
