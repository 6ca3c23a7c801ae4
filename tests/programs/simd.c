/* SSE, AVX2 and AVX-512 code by intrinsics; what the CPU lacks is left out (the same in every run). */
#include "mix.h"
#include <immintrin.h>

static _Alignas(64) float x[256], y[256];
static _Alignas(64) int32_t ints[256];
static _Alignas(64) uint8_t bytes[256];

__attribute__((noinline)) static float sse(void) {
    __m128 s = _mm_setzero_ps();
    for (int i = 0; i < 256; i += 4)
        s = _mm_add_ps(s, _mm_mul_ps(_mm_loadu_ps(x + i), _mm_load_ps(y + (i ^ 4))));
    __m128i low = _mm_loadl_epi64((const __m128i *)(bytes + 9));
    __m128d d = _mm_loadh_pd(_mm_load_sd((const double *)(bytes + 16)), (const double *)(bytes + 40));
    float out[4];
    _mm_storeu_ps(out, s);
    mix((uint64_t)_mm_cvtsi128_si64(low));
    mix((uint64_t)_mm_movemask_pd(d));
    mix((uint64_t)_mm_cvtsd_si64(_mm_sqrt_sd(d, _mm_load_sd((const double *)x))));
    return out[0] + out[1] + out[2] + out[3];
}

__attribute__((noinline, target("sse4.2"))) static uint64_t sse4(void) {
    uint64_t crc = 1;
    for (int i = 0; i + 8 <= 256; i += 8)
        crc = _mm_crc32_u64(crc, *(const uint64_t *)(bytes + i));
    __m128i v = _mm_insert_epi8(_mm_loadu_si128((const __m128i *)bytes), bytes[77], 3);
    v = _mm_shuffle_epi8(v, *(const __m128i *)(bytes + 32));
    v = _mm_add_epi32(v, _mm_cvtepu8_epi32(_mm_cvtsi32_si128(*(const int *)(bytes + 12))));
    return crc + (uint64_t)_mm_extract_epi64(v, 1);
}

__attribute__((noinline, target("avx2,fma"))) static uint64_t avx2(void) {
    __m256 s = _mm256_setzero_ps();
    for (int i = 0; i < 256; i += 8)
        s = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_load_ps(y + i), s);
    s = _mm256_add_ps(s, _mm256_broadcast_ss(x + 5));
    __m256i m = _mm256_setr_epi32(-1, 0, -1, 0, 0, -1, 0, -1);
    __m256i part = _mm256_maskload_epi32(ints + 30, m);
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(bytes + 3)));
    __m256i both = _mm256_add_epi32(part, _mm256_add_epi32(wide, _mm256_broadcastsi128_si256(*(const __m128i *)(ints + 8))));
    both = _mm256_permutevar8x32_epi32(both, *(const __m256i *)(ints + 16));
    float out[8];
    int32_t iout[8];
    _mm256_storeu_ps(out, s);
    _mm256_storeu_si256((__m256i *)iout, both);
    uint64_t r = 0;
    for (int i = 0; i < 8; i++)
        r = r * 31 + (uint64_t)(int64_t)out[i] + (uint32_t)iout[i];
    return r;
}

__attribute__((noinline, target("avx512f,avx512bw,avx512vl"))) static uint64_t avx512(void) {
    __m512 s = _mm512_setzero_ps();
    for (int i = 0; i < 256; i += 16)
        s = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(y[i]), s);
    __m512i a = _mm512_maskz_loadu_epi32(0x5a5a, ints + 3);
    a = _mm512_mask_add_epi32(a, 0x0ff0, a, *(const __m512i *)(ints + 16));
    a = _mm512_mask_expandloadu_epi32(a, 0x1111, ints + 100);
    __mmask64 k = _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(bytes), _mm512_loadu_si512(bytes + 64));
    __m512i b = _mm512_ternarylogic_epi32(a, _mm512_loadu_si512(ints + 77), _mm512_set1_epi32(ints[9]), 0x96);
    return (uint64_t)_mm512_reduce_add_ps(s) + (uint64_t)k + (uint32_t)_mm512_reduce_add_epi32(b);
}

int main(void) {
    uint32_t state = 77;
    for (int i = 0; i < 256; i++) {
        x[i] = (float)(next_random(&state) % 64);
        y[i] = (float)(next_random(&state) % 64);
        ints[i] = (int32_t)(next_random(&state) % 10000);
        bytes[i] = (uint8_t)next_random(&state);
    }
    __builtin_cpu_init();
    mix((uint64_t)sse());
    if (__builtin_cpu_supports("sse4.2"))
        mix(sse4());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        mix(avx2());
    else
        fprintf(stderr, "SKIPPED: this CPU has no AVX2\n");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        mix(avx512());
    else
        fprintf(stderr, "SKIPPED: this CPU has no AVX-512\n");
    report("simd");
    return 0;
}
