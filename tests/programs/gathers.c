/* Gathers of every shape, with some lanes switched off. */
#include "mix.h"
#include <immintrin.h>

static int32_t ints[512];
static int64_t longs[512];
static double doubles[512];
static float floats[512];
static int32_t index32[64];
static int64_t index64[64];

__attribute__((noinline, target("avx2"))) static uint64_t avx2(void) {
    __m256i acc = _mm256_setzero_si256();
    for (int i = 0; i < 64; i += 8)
        acc = _mm256_add_epi32(acc, _mm256_i32gather_epi32(ints, _mm256_loadu_si256((const __m256i *)(index32 + i)), 4));
    __m256i mask = _mm256_setr_epi32(-1, 0, -1, -1, 0, 0, -1, 0);
    acc = _mm256_mask_i32gather_epi32(acc, ints + 7, _mm256_loadu_si256((const __m256i *)index32), mask, 4);
    __m256i l = _mm256_i32gather_epi64((const long long *)longs, _mm_loadu_si128((const __m128i *)(index32 + 4)), 8);
    l = _mm256_add_epi64(l, _mm256_i64gather_epi64((const long long *)longs + 1, _mm256_loadu_si256((const __m256i *)index64), 8));
    __m128i q = _mm256_i64gather_epi32(ints, _mm256_loadu_si256((const __m256i *)(index64 + 4)), 4);
    __m256d d = _mm256_i32gather_pd(doubles, _mm_loadu_si128((const __m128i *)index32), 8);
    __m128d d2 = _mm_i64gather_pd(doubles, _mm_loadu_si128((const __m128i *)index64), 8);
    __m256 f = _mm256_i32gather_ps(floats, _mm256_loadu_si256((const __m256i *)(index32 + 9)), 4);
    int64_t out[4];
    uint64_t r = 0;
    _mm256_storeu_si256((__m256i *)out, acc);
    for (int i = 0; i < 4; i++)
        r = r * 31 + (uint64_t)out[i];
    _mm256_storeu_si256((__m256i *)out, l);
    for (int i = 0; i < 4; i++)
        r = r * 31 + (uint64_t)out[i];
    double dd[4];
    _mm256_storeu_pd(dd, d);
    float ff[8];
    _mm256_storeu_ps(ff, f);
    r += (uint64_t)(dd[0] + dd[1] + dd[2] + dd[3] + _mm_cvtsd_f64(d2) + ff[0] + ff[7]);
    return r + (uint64_t)_mm_cvtsi128_si64(q);
}

__attribute__((noinline, target("avx512f"))) static uint64_t avx512(void) {
    __m512i acc = _mm512_setzero_si512();
    for (int i = 0; i < 64; i += 16)
        acc = _mm512_add_epi32(acc, _mm512_i32gather_epi32(_mm512_loadu_si512(index32 + i), ints, 4));
    acc = _mm512_mask_i32gather_epi32(acc, 0xb3c5, _mm512_loadu_si512(index32), ints + 3, 4);
    __m512i l = _mm512_i64gather_epi64(_mm512_loadu_si512(index64), longs, 8);
    l = _mm512_mask_i32gather_epi64(l, 0x5d, _mm256_loadu_si256((const __m256i *)index32), longs + 2, 8);
    __m512d d = _mm512_mask_i64gather_pd(_mm512_setzero_pd(), 0x00, _mm512_loadu_si512(index64), doubles, 8);
    d = _mm512_add_pd(d, _mm512_i32gather_pd(_mm256_loadu_si256((const __m256i *)index32), doubles, 8));
    return (uint32_t)_mm512_reduce_add_epi32(acc) + (uint64_t)_mm512_reduce_add_epi64(l) + (uint64_t)_mm512_reduce_add_pd(d);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    uint32_t state = 31;
    for (int i = 0; i < 512; i++) {
        ints[i] = (int32_t)(next_random(&state) % 100000);
        longs[i] = (int64_t)next_random(&state);
        doubles[i] = ints[i];
        floats[i] = (float)(ints[i] % 1000);
    }
    for (int i = 0; i < 64; i++) {
        index32[i] = (int32_t)(next_random(&state) % 400);
        index64[i] = (int64_t)(next_random(&state) % 400);
    }
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        for (int i = 0; i < rounds; i++)
            mix(avx2());
    else
        fprintf(stderr, "SKIPPED: this CPU has no AVX2\n");
    if (__builtin_cpu_supports("avx512f"))
        for (int i = 0; i < rounds; i++)
            mix(avx512());
    else
        fprintf(stderr, "SKIPPED: this CPU has no AVX-512\n");
    report("gathers");
    return 0;
}
