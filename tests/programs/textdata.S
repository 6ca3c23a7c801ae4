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
    .section .note.GNU-stack,"",@progbits
