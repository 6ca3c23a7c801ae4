# unsigned long dispatch(long steps, const unsigned char *code, unsigned long *memory)
    .text
    .globl dispatch
    .type dispatch, @function
dispatch:
    .cfi_startproc
    xorl %eax, %eax
    xorl %ecx, %ecx
    leaq table(%rip), %r8
next:
    movzbl %cl, %r9d
    movzbl (%rsi,%r9), %r10d
    incl %ecx
    cmpl $3, %r10d
    ja done
    movslq (%r8,%r10,4), %r11
    .rept 8
    pause
    .endr
    addq %r8, %r11
    jmp *%r11
zero:
    addq (%rdx,%r9,8), %rax
    jmp again
one:
    xorq (%rdx,%r9,8), %rax
    jmp again
two:
    leaq 1(%rax,%rax,2), %rax
    jmp again
three:
    rolq $7, %rax
    movq %rax, (%rdx,%r9,8)
again:
    decq %rdi
    jne next
done:
    ret
    .cfi_endproc
    .size dispatch, .-dispatch
    .section .rodata
    .align 4
table:
    .long zero - table
    .long one - table
    .long two - table
    .long three - table
    .section .note.GNU-stack, "", @progbits
