# Switches whose compiler knew that no other value comes: nothing compares the index. The tables stand one behind the other, so that what
# follows the first one's end looks like more of its entries.
        .text
        .globl  main, first, second, unseen, into_unseen
        .type   main, @function
main:   xorl    %eax, %eax
        ret
        .size   main, .-main

        .type   first, @function
first:  leaq    .Lt1(%rip), %r8
1:      movzwl  (%rdi), %ecx
        movslq  (%r8,%rcx,4), %rcx
        addq    %r8, %rcx
        jmp     *%rcx
.La:    addq    $2, %rdi
        jmp     1b
.Lb:    addq    $4, %rdi
        jmp     1b
.Lc:    movl    %ecx, %eax
        ret
        .size   first, .-first

        .type   second, @function
second: pushq   %rbp
        pushq   %rbx
        movl    8(%rdi), %eax
        leaq    .Lt2(%rip), %r9
        jmp     2f
.Lagain:
        movl    8(%rdi), %eax
# A target three bytes behind another one.
.Lmid:  testl   %eax, %eax
        je      .Lend
2:      movzwl  (%rdi), %ecx
        movslq  (%r9,%rcx,4), %rcx
        addq    %r9, %rcx
        jmp     *%rcx
.Ld:    subl    $3, 8(%rdi)
        cmpq    %rdi, %rsi
        je      .Lagain
        xorl    %eax, %eax
        xorl    %edx, %edx
        xorl    %ebp, %ebp
        jmp     .Lagain
.Le:    addq    $6, %rdi
        jmp     .Lagain
.Lend:  popq    %rbx
        popq    %rbp
        ret
        .size   second, .-second

# A table at an address that comes from memory: any instruction may be a target.
        .type   unseen, @function
unseen: movq    (%rsi), %r8
        movq    8(%rsi), %rcx
        movslq  (%r8,%rcx,4), %rcx
        addq    %r8, %rcx
        jmp     *%rcx
.Lin:   addl    %eax, %eax
        addl    %ecx, %eax
        addl    %edx, %eax
        ret
.Lwide: movl    $1234567, %eax
        ret
        .size   unseen, .-unseen

        .type   into_unseen, @function
into_unseen:
        testl   %edi, %edi
        je      .Lin
        jmp     .Lwide
        .size   into_unseen, .-into_unseen

        .section .rodata
        .balign 4
.Lt1:   .long   .La-.Lt1, .Lb-.Lt1, .Lc-.Lt1
.Lt2:   .long   .Lmid-.Lt2, .Ld-.Lt2, .Le-.Lt2, .Ld-.Lt2
        .ascii  "no more entries of tables"
        .section .note.GNU-stack,"",@progbits
