/* Marks the phases of a program that mgz-record records: mgz_start() begins one, mgz_stop() ends
 * it. They hold for the whole process, whichever thread calls them, and pairs do not nest: what was
 * called last counts. A program that has an mgz_start() anywhere is not recorded before the first
 * one is reached.
 *
 * Each is one instruction that does nothing, and a note (a USDT probe, provider "mgz") that says
 * where it is. Without mgz nothing happens. No library is needed. x86-64 Linux; elsewhere nothing is
 * emitted. For C and C++.
 */
#ifndef MGZ_H
#define MGZ_H

#if defined(__x86_64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
/* The note has the form of SystemTap's sys/sdt.h: address, base, semaphore; provider, name,
 * arguments. The section "_.stapsdt.base" lets tools find out whether addresses have moved. The
 * memory clobber keeps the compiler from moving loads and stores across the marker. */
#define MGZ_MARKER_(name)                                                                          \
    __asm__ __volatile__("990: nop\n"                                                              \
                         ".pushsection .note.stapsdt,\"?\",\"note\"\n"                             \
                         ".balign 4\n"                                                             \
                         ".4byte 992f-991f, 994f-993f, 3\n"                                        \
                         "991: .asciz \"stapsdt\"\n"                                               \
                         "992: .balign 4\n"                                                        \
                         "993: .8byte 990b\n"                                                      \
                         ".8byte _.stapsdt.base\n"                                                 \
                         ".8byte 0\n"                                                              \
                         ".asciz \"mgz\"\n"                                                        \
                         ".asciz \"" name "\"\n"                                                   \
                         ".asciz \"\"\n"                                                           \
                         "994: .balign 4\n"                                                        \
                         ".popsection\n"                                                           \
                         ".ifndef _.stapsdt.base\n"                                                \
                         ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"   \
                         ".weak _.stapsdt.base\n"                                                  \
                         ".hidden _.stapsdt.base\n"                                                \
                         "_.stapsdt.base: .space 1\n"                                              \
                         ".size _.stapsdt.base, 1\n"                                               \
                         ".popsection\n"                                                           \
                         ".endif\n" ::: "memory")
#else
#define MGZ_MARKER_(name) ((void)0)
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MGZ_INLINE_ static inline __attribute__((always_inline, unused))
#else
#define MGZ_INLINE_ static inline
#endif

/* A phase begins. */
MGZ_INLINE_ void mgz_start(void)
{
    MGZ_MARKER_("start");
}

/* The phase ends. */
MGZ_INLINE_ void mgz_stop(void)
{
    MGZ_MARKER_("stop");
}

#endif
