/* Jump tables in shapes that this machine's compilers do not make (tables.S): tables of small numbers in front of tables of places, as MSVC and older compilers
   have them; tables without a check; places as bytes and words. Each case has a result of its own, which is compared. */
#include "mix.h"

typedef long form(unsigned long x, const long *memory);

#define FORMS(F) \
    F(checked, 60) F(word_indices, 60) F(checked_behind, 60) F(through_stack, 60) F(signed_check, 60) F(other_way, 60) F(twins, 60) F(whole_byte, 256) F(masked, 8) F(masked_bytes, 16) \
    F(unreachable, 60) F(pointers, 60) F(image_base, 60) F(image_masked, 16) F(bytes, 7) F(words, 7) F(backwards, 7) F(by_shift, 32) F(nested, 60) F(partly, 60)
#define DECLARE(name, most) form name;
FORMS(DECLARE)
long looped(unsigned long n, const long *memory, const unsigned char *code);

static const struct {
    const char *name;
    form *function;
    unsigned most;
} forms[] = {
#define ROW(name, most) {#name, name, most},
    FORMS(ROW)
};

/* What the cases of tables.S give. */
static long expected(unsigned long x, const long *memory, unsigned most) {
    if (x >= most)
        return ~memory[8];
    unsigned long k = most == 7 ? x : most == 8 ? x % 7 : most == 32 ? x / 8 + 1 : (x * 5 + 3) % 7;
    return memory[k] + (long)k * 3 + 1;
}

int main(void) {
    long memory[12];
    unsigned char code[100];
    uint32_t state = 5;
    int wrong = 0;
    for (int i = 0; i < 12; i++)
        memory[i] = next_random(&state) % 100000 + (i << 20);
    for (int i = 0; i < 100; i++)
        code[i] = (unsigned char)next_random(&state);
    for (unsigned f = 0; f < sizeof forms / sizeof *forms; f++) {
        /* Those that check nothing get nothing else. */
        int checks = forms[f].function != whole_byte && forms[f].function != masked && forms[f].function != masked_bytes && forms[f].function != unreachable &&
                     forms[f].function != image_masked && forms[f].function != by_shift;
        for (unsigned long x = 0; x < forms[f].most + (checks ? 12u : 0u); x++) {
            long got = forms[f].function(x, memory), want = expected(x, memory, forms[f].most);
            mix((uint64_t)got);
            if (got != want) {
                printf("%s(%lu) is %ld, not %ld\n", forms[f].name, x, got, want);
                wrong++;
            }
        }
    }
    long sum = 0;
    for (int i = 0; i < 100; i++)
        sum = sum * 3 + expected(code[i], memory, 256);
    long got = looped(100, memory, code);
    mix((uint64_t)got);
    if (got != sum) {
        printf("looped is %ld, not %ld\n", got, sum);
        wrong++;
    }
    report("tables");
    return wrong;
}
