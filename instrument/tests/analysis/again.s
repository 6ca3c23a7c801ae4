# A loop around a switch as gcc makes it: the table's address is set before the loop, the bound is checked before the loop and at its end, on one
# byte; and a case calls a function that does not return, behind which the loop's end stands.
        .text
        .globl  main, options
        .type   main, @function
main:   xorl    %eax, %eax
        ret
        .size   main, .-main

        .type   options, @function
options:
        pushq   %rbx
        xorl    %ebx, %ebx
        movzbl  1(%rdi), %eax
        subl    $49, %eax
        leaq    2(%rdi), %rcx
        leaq    .Lt(%rip), %rsi
        cmpb    $3, %al
        ja      .Lbad
.Lgo:   movzbl  %al, %eax
        movslq  (%rsi,%rax,4), %rax
        addq    %rsi, %rax
        jmp     *%rax
.La:    addl    $1, %ebx
        jmp     .Lnext
.Lb:    addl    $2, %ebx
        jmp     .Lnext
.Lbad:  movl    $1, %edi
        call    exit@PLT
.Lc:    addl    $3, %ebx
.Lnext: movzbl  (%rcx), %eax
        addq    $1, %rcx
        testb   %al, %al
        je      .Lend
        subl    $49, %eax
        cmpb    $3, %al
        jbe     .Lgo
        jmp     .Lbad
.Lend:  movl    %ebx, %eax
        popq    %rbx
        ret
        .size   options, .-options

        .section .rodata
        .balign 4
.Lt:    .long   .La-.Lt, .Lb-.Lt, .Lbad-.Lt, .Lc-.Lt
        .ascii  "no more entries of tables"
        .section .note.GNU-stack,"",@progbits
