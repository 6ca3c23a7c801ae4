// Slices in Rust, with the comments of arrays.c.
use std::hint::black_box;

pub struct Buffer<'a> { pub data: &'a [u32], pub at: usize, pub all: Vec<u64> }

#[inline(never)]
pub fn indexed(a: &[u64]) -> u64 { let (mut s, mut i) = (0u64, 0); while i < a.len() {
    s = (s ^ a[i]).rotate_left(3); /*= strided 8 */
    i += 1; } s }

#[inline(never)]
pub fn backward(a: &[u32]) -> u32 { let (mut s, mut i) = (0u32, a.len()); while i > 0 { i -= 1;
    s = s.wrapping_mul(3) ^ a[i]; /*= strided -4 */
  } s }

#[inline(never)]
pub fn iterated(a: &[u64]) -> u64 { let mut s = 0u64; for x in a {
    s = (s ^ *x).rotate_left(5); /*=2 strided 8 */
  } s }

#[inline(never)]
pub fn member(b: &Buffer) { let mut i = 0; while i < b.data.len() {
    black_box(b.data[i]); /*= irregular, strided 4 */
    i += 1; } }

#[inline(never)]
pub fn position(b: &mut Buffer) { while b.at < b.data.len() {
    black_box(b.data[b.at]); /*= irregular, strided 4 */
    b.at += 1; } }

#[inline(never)]
pub fn through(a: &[u64], i: &mut usize) { while *i < a.len() {
    black_box(a[*i]); /*= irregular, strided 8 */
    *i += 1; } }

#[inline(never)]
pub fn vector(b: &Buffer) { let mut i = 0; while i < b.all.len() {
    black_box(b.all[i]); /*=2 irregular, strided 8 */
    i += 1; } }

#[inline(never)]
pub fn gathered(a: &[u64], by: &[u32]) -> u64 { let (mut s, mut i) = (0u64, 0); while i < by.len() {
    s = (s ^ a[by[i] as usize]).rotate_left(7); /*= strided 4, irregular */
    i += 1; } s }

fn main() {
    let v: Vec<u64> = (0..100).collect();
    let w: Vec<u32> = (0..100).collect();
    let mut b = Buffer { data: &w, at: 0, all: v.clone() };
    let mut i = 0;
    black_box((indexed(&v), backward(&w), iterated(&v), gathered(&v, &w)));
    member(&b); position(&mut b); through(&v, &mut i); vector(&b);
}
