/* Hand-written code as libraries have it: data between functions and inside of them, jumps over data, a table of distances in the text,
   code that looks like other instructions when it is read from the wrong byte, two functions with one tail, an entry of one byte. */
    .text
    .globl mgz_words
    .type mgz_words, @object
mgz_words:
    .long 0x12345678, 0xc3c3c3c3, 0xe8e8e8e8, 0x0f050f05, 7, 8, 9, 10
    .size mgz_words, 32

    .globl mgz_lookup
    .type mgz_lookup, @function
mgz_lookup:
    .cfi_startproc
    and $7, %edi
    lea mgz_words(%rip), %rax
    movslq (%rax,%rdi,4), %rax
    jmp 1f
    .ascii "data in the middle\0"
    .byte 0xe9, 0xff, 0xff
1:  add $3, %rax
    ret
    .cfi_endproc
    .size mgz_lookup, . - mgz_lookup

    .globl mgz_mixed
    .type mgz_mixed, @function
mgz_mixed:
    .cfi_startproc
    xor %eax, %eax
    lea 2f(%rip), %r8
1:  mov -8(%rdi,%rsi,8), %rcx
    add (%r8), %rcx
    add %rcx, %rax
    dec %rsi
    jnz 1b
    ret
    .balign 8
2:  .quad 0x0102030405060708
    .cfi_endproc
    .size mgz_mixed, . - mgz_mixed

    .globl mgz_dispatch
    .type mgz_dispatch, @function
mgz_dispatch:
    .cfi_startproc
    lea 3f(%rip), %rdx
    cmp $4, %rdi
    ja 9f
    movslq (%rdx,%rdi,4), %rax
    add %rdx, %rax
    jmp *%rax
    .balign 4
3:  .long 4f-3b, 5f-3b, 6f-3b, 4f-3b, 10f-3b
4:  lea 1(%rsi), %rax
    ret
5:  mov mgz_words+4(%rip), %eax
    ret
6:  imul $3, %rsi, %rax
    /* fall through */
7:  xor mgz_words+16(%rip), %eax
    ret
9:  mov $-1, %rax
    ret
10: mov %rsi, %rax
    jmp 7b
    .cfi_endproc
    .size mgz_dispatch, . - mgz_dispatch

    .globl mgz_shared_tail
    .type mgz_shared_tail, @function
mgz_shared_tail:
    .cfi_startproc
    add (%rsi), %rdi
8:  mov 8(%rsi), %rax
    add 16(%rsi), %rax
    sub %rdi, %rax
    ret
    .cfi_endproc
    .size mgz_shared_tail, . - mgz_shared_tail

    .globl mgz_shared_other
    .type mgz_shared_other, @function
mgz_shared_other:
    .cfi_startproc
    neg %rdi
    jmp 8b
    .cfi_endproc
    .size mgz_shared_other, . - mgz_shared_other

    /* Data that look like code to which nothing leads. */
    .globl mgz_seen
    .type mgz_seen, @function
mgz_seen:
    .cfi_startproc
    lea 11f(%rip), %rax
    mov (%rax,%rdi,8), %rax
    ret
11: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0xc3
    .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_seen, . - mgz_seen

    /* Data that look like filler. */
    .globl mgz_filler
    .type mgz_filler, @function
mgz_filler:
    .cfi_startproc
    jmp 13f
12: .long 0x90909090
13: mov 12b(%rip), %eax
    add %edi, %eax
    ret
    .cfi_endproc
    .size mgz_filler, . - mgz_filler

    /* A call that returns four bytes behind the start. */
    .globl mgz_through
    .type mgz_through, @function
mgz_through:
    .cfi_startproc
    push %rax
    .cfi_adjust_cfa_offset 8
    call *%rsi
    pop %rcx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size mgz_through, . - mgz_through

    /* Two constants that look like code, one running into the other. */
    .globl mgz_pair
    .type mgz_pair, @function
mgz_pair:
    .cfi_startproc
    lea 14f(%rip), %rax
    lea 15f(%rip), %rcx
    mov (%rax), %rax
    add (%rcx), %rax
    add %rdi, %rax
    ret
14: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0x99
15: .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_pair, . - mgz_pair

    /* A table behind a call that never returns. */
    .globl mgz_never
    .type mgz_never, @function
mgz_never:
    .cfi_startproc
    cmp $100, %rdi
    ja 16f
    and $1, %edi
    lea 17f(%rip), %rcx
    mov (%rcx,%rdi,8), %rax
    ret
16: push %rax
    .cfi_adjust_cfa_offset 8
    call abort@PLT
    .balign 8
17: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0x99
    .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_never, . - mgz_never

    /* A function that has no room for a jump before a constant, which another reads. */
    .globl mgz_die
    .type mgz_die, @function
mgz_die:
    .cfi_startproc
    xor %edi, %edi
    syscall
18: .quad 0x9000000007c0c748
    ret
    .cfi_endproc
    .size mgz_die, . - mgz_die
    .globl mgz_constant
    .type mgz_constant, @function
mgz_constant:
    .cfi_startproc
    mov 18b(%rip), %rax
    add %rdi, %rax
    ret
    .cfi_endproc
    .size mgz_constant, . - mgz_constant

    /* Constants by way of pointers in the data. */
    .globl mgz_pointed
    .type mgz_pointed, @function
mgz_pointed:
    .cfi_startproc
    lea 21f(%rip), %rcx
    and $1, %edi
    mov (%rcx,%rdi,8), %rax
    mov (%rax), %rax
    ret
19: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0xc3
20: .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_pointed, . - mgz_pointed

    /* A function, and a table behind it that begins like filler and is read by way of an address before it. */
    .p2align 4
    .globl mgz_zero
    .type mgz_zero, @function
mgz_zero:
    .cfi_startproc
    xor %eax, %eax
    ret
    .cfi_endproc
    .size mgz_zero, . - mgz_zero
22: .byte 0x90, 0x90, 0xcc, 0x90, 0x90, 0x90, 0x90, 0x90, 1, 2, 3, 4, 5, 6, 7, 8
    .globl mgz_behind
    .type mgz_behind, @function
mgz_behind:
    .cfi_startproc
    and $15, %edi
    inc %rdi
    lea 22b-1(%rip), %rcx
    movzbl (%rcx,%rdi), %eax
    ret
    .cfi_endproc
    .size mgz_behind, . - mgz_behind

    /* An address that is kept for who reads there, in a function that jumps elsewhere. */
    .globl mgz_kept
    .type mgz_kept, @function
mgz_kept:
    .cfi_startproc
    lea 23f(%rip), %rax
    mov %rax, -16(%rsp)
    lea mgz_keeper(%rip), %rdx
    mov %rdx, -8(%rsp)
    mov -8(%rsp), %rdx
    jmp *%rdx
23: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_kept, . - mgz_kept
    .type mgz_keeper, @function
mgz_keeper:
    .cfi_startproc
    mov -16(%rsp), %rax
    mov (%rax), %rax
    add %rdi, %rax
    ret
    .cfi_endproc
    .size mgz_keeper, . - mgz_keeper

    /* A table between functions, with what looks like calls of the byte behind. */
    .p2align 4
24: .quad 1, 247, 232, 142, 15, 7, 22, 12
    .globl mgz_between
    .type mgz_between, @function
mgz_between:
    .cfi_startproc
    and $7, %edi
    lea 24b(%rip), %rcx
    mov (%rcx,%rdi,8), %rax
    ret
    .cfi_endproc
    .size mgz_between, . - mgz_between

    /* A loop from the third byte of the function on, and a jump into the middle of another, both by computed addresses. */
    .globl mgz_again
    .type mgz_again, @function
mgz_again:
    .cfi_startproc
    xor %eax, %eax
    add $3, %rax
    dec %rdi
    js 25f
    lea mgz_again(%rip), %rcx
    add $2, %rcx
    jmp *%rcx
25: ret
    .cfi_endproc
    .size mgz_again, . - mgz_again
    .globl mgz_into
    .type mgz_into, @function
mgz_into:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    lea 26f(%rip), %rcx
    shl $2, %rdi
    sub %rdi, %rcx
    jmp *%rcx
    .cfi_endproc
    .size mgz_into, . - mgz_into
    .type mgz_steps, @function
mgz_steps:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
26: ret
    .cfi_endproc
    .size mgz_steps, . - mgz_steps

    /* The same by calls, from the other's end and from its start; by returns and by way of other code, once into its own middle. */
    .globl mgz_called_end
    .type mgz_called_end, @function
mgz_called_end:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    lea 27f(%rip), %rcx
    shl $2, %rdi
    sub %rdi, %rcx
    push %rbx
    .cfi_adjust_cfa_offset 8
    call *%rcx
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size mgz_called_end, . - mgz_called_end
    .type mgz_steps_end, @function
mgz_steps_end:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
27: ret
    .cfi_endproc
    .size mgz_steps_end, . - mgz_steps_end
    .globl mgz_called_start
    .type mgz_called_start, @function
mgz_called_start:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    lea mgz_steps_start(%rip), %rcx
    lea (%rcx,%rdi,4), %rcx
    push %rbx
    .cfi_adjust_cfa_offset 8
    call *%rcx
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size mgz_called_start, . - mgz_called_start
    .type mgz_steps_start, @function
mgz_steps_start:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
    ret
    .cfi_endproc
    .size mgz_steps_start, . - mgz_steps_start
    .globl mgz_returned
    .type mgz_returned, @function
mgz_returned:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    lea 28f(%rip), %rcx
    shl $2, %rdi
    sub %rdi, %rcx
    push %rcx
    .cfi_adjust_cfa_offset 8
    ret
    .cfi_endproc
    .size mgz_returned, . - mgz_returned
    .type mgz_steps_returned, @function
mgz_steps_returned:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
28: ret
    .cfi_endproc
    .size mgz_steps_returned, . - mgz_steps_returned
    .type mgz_thunk, @function
mgz_thunk:
    .cfi_startproc
    jmp *%rcx
    .cfi_endproc
    .size mgz_thunk, . - mgz_thunk
    .globl mgz_by_way
    .type mgz_by_way, @function
mgz_by_way:
    .cfi_startproc
    xor %eax, %eax
    add $3, %rax
    dec %rdi
    js 29f
    lea mgz_by_way(%rip), %rcx
    add $2, %rcx
    jmp mgz_thunk
29: ret
    .cfi_endproc
    .size mgz_by_way, . - mgz_by_way

    /* Constants by way of pointers in the data, in a function with a jump to elsewhere. */
    .globl mgz_passed
    .type mgz_passed, @function
mgz_passed:
    .cfi_startproc
    lea 30f(%rip), %rcx
    lea mgz_zero(%rip), %rdx
    test $2, %edi
    jz 31f
    lea mgz_plus(%rip), %rdx
31: and $1, %edi
    mov (%rcx,%rdi,8), %rax
    mov (%rax), %rdi
    jmp *%rdx
32: .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0xc3
33: .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
    .cfi_endproc
    .size mgz_passed, . - mgz_passed
    .type mgz_plus, @function
mgz_plus:
    .cfi_startproc
    lea 5(%rdi), %rax
    ret
    .cfi_endproc
    .size mgz_plus, . - mgz_plus

    /* A table behind a system call that never returns, read by an address in its middle. */
    .globl mgz_leave
    .type mgz_leave, @function
mgz_leave:
    .cfi_startproc
    xor %edi, %edi
    syscall
    .byte 0x48, 0xc7, 0xc0, 7, 0, 0, 0, 0x99
    .byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0, 0xc3
34: .quad 11, 13
    .cfi_endproc
    .size mgz_leave, . - mgz_leave
    .globl mgz_middle
    .type mgz_middle, @function
mgz_middle:
    .cfi_startproc
    and $3, %edi
    lea 34b(%rip), %rcx
    mov -16(%rcx,%rdi,8), %rax
    ret
    .cfi_endproc
    .size mgz_middle, . - mgz_middle

    /* A table of addresses in the text, of places in another function. */
    .globl mgz_worded
    .type mgz_worded, @function
mgz_worded:
    .cfi_startproc
    and $3, %edi
    xor %eax, %eax
#ifndef __PIC__
    mov $35f, %esi
    push %rdi
    .cfi_adjust_cfa_offset 8
    call 36f
    pop %rdi
    .cfi_adjust_cfa_offset -8
    lea (%rsi,%rdi,8), %rdx
    mov (%rdx), %rdx
    jmp *%rdx
    .balign 8
35: .quad 36f, 37f, 38f, 39f
#else
    lea 8(%rdi), %rax
    ret
#endif
    .cfi_endproc
    .size mgz_worded, . - mgz_worded
    .type mgz_words_end, @function
mgz_words_end:
    .cfi_startproc
    xor %eax, %eax
    ret
36: inc %eax
37: inc %eax
38: inc %eax
39: inc %eax
    ret
    .cfi_endproc
    .size mgz_words_end, . - mgz_words_end

    /* From the other's start, whose address is in the data. */
    .globl mgz_by_word
    .type mgz_by_word, @function
mgz_by_word:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    mov 44f(%rip), %rcx
    lea (%rcx,%rdi,4), %rcx
    jmp *%rcx
    .cfi_endproc
    .size mgz_by_word, . - mgz_by_word
    .type mgz_steps_word, @function
mgz_steps_word:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
    ret
    .cfi_endproc
    .size mgz_steps_word, . - mgz_steps_word

    /* The same, the address being on the stack. */
    .globl mgz_by_stack
    .type mgz_by_stack, @function
mgz_by_stack:
    .cfi_startproc
    xor %eax, %eax
    and $7, %edi
    lea mgz_steps_stack(%rip), %rcx
    mov %rcx, -16(%rsp)
    shl $2, %rdi
    add %rdi, -16(%rsp)
    jmp *-16(%rsp)
    .cfi_endproc
    .size mgz_by_stack, . - mgz_by_stack
    .type mgz_steps_stack, @function
mgz_steps_stack:
    .cfi_startproc
    .rept 8
    add $3, %rax
    .endr
    ret
    .cfi_endproc
    .size mgz_steps_stack, . - mgz_steps_stack

    /* Reads a function byte by byte, as if to copy it. */
    .globl mgz_bytes
    .type mgz_bytes, @function
mgz_bytes:
    .cfi_startproc
    lea mgz_template(%rip), %rsi
    mov $(45f-mgz_template), %ecx
    xor %eax, %eax
46: movzbl (%rsi), %edx
    lea (%rax,%rax,2), %eax
    add %edx, %eax
    inc %rsi
    loop 46b
    add %rdi, %rax
    ret
    .cfi_endproc
    .size mgz_bytes, . - mgz_bytes
    .type mgz_template, @function
mgz_template:
    .cfi_startproc
    mov $1, %eax
    ret
    .cfi_endproc
    .size mgz_template, . - mgz_template
45:

    /* By tables of distances in the data, in ways of no compiler: to the second and third instruction of the function itself, and into another one. */
    .globl mgz_near
    .type mgz_near, @function
mgz_near:
    .cfi_startproc
    xor %eax, %eax
47: inc %eax
48: inc %eax
    dec %edi
    js 49f
    mov %edi, %ecx
    and $3, %ecx
    push %rcx
    .cfi_adjust_cfa_offset 8
    lea 50f(%rip), %rdx
    pop %rcx
    .cfi_adjust_cfa_offset -8
    movslq (%rdx,%rcx,4), %rcx
    add %rdx, %rcx
    cmp $1000, %eax
    ja 49f
    xchg %rcx, %r8
    jmp *%r8
49: ret
    .cfi_endproc
    .size mgz_near, . - mgz_near
    .globl mgz_distant
    .type mgz_distant, @function
mgz_distant:
    .cfi_startproc
    and $3, %edi
    xor %eax, %eax
    lea 51f(%rip), %rdx
    movslq (%rdx,%rdi,4), %rcx
    add %rcx, %rdx
    push %rdx
    .cfi_adjust_cfa_offset 8
    inc %eax
    ret
    .cfi_endproc
    .size mgz_distant, . - mgz_distant
    .type mgz_steps_distant, @function
mgz_steps_distant:
    .cfi_startproc
    xor %eax, %eax
    ret
52: inc %eax
53: inc %eax
54: inc %eax
55: inc %eax
    ret
    .cfi_endproc
    .size mgz_steps_distant, . - mgz_steps_distant
    .globl mgz_distant_first
    .type mgz_distant_first, @function
mgz_distant_first:
    .cfi_startproc
    xor %eax, %eax
    jmp 52b
    .cfi_endproc
    .size mgz_distant_first, . - mgz_distant_first
    .section .rodata
    .balign 4
50: .long 47b-50b, 48b-50b, 49b-50b, 47b-50b
51: .long 52b-51b, 53b-51b, 54b-51b, 55b-51b
    .text

    /* Functions without unwind data and symbols of a type, some with data behind them: one calls another's second instruction, two jump to its third. */
    .p2align 4
    .globl mgz_bare_before
mgz_bare_before:
    mov $1, %eax
    jmp 42f
    xor %eax, %eax
41: inc %eax
42: add %edi, %eax
    ret
    .globl mgz_bare_behind
mgz_bare_behind:
    xor %eax, %eax
    jmp 42b
    .byte 6, 6, 6
    .globl mgz_bare_calls
mgz_bare_calls:
    xor %eax, %eax
    call 41b
    ret
    .byte 6, 6, 6

    .section .data.rel.ro, "aw"
    .balign 8
21: .quad 19b, 20b
30: .quad 32b, 33b
44: .quad mgz_steps_word
    .section .note.GNU-stack,"",@progbits
