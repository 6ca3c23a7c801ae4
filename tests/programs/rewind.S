/* The instructions that rewind.c has its handlers step over: each function begins with it or has it close to its begin, where a jump into
   other code may lie over it. */
    .text
    .macro function name
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    .endm
    .macro end name
    .cfi_endproc
    .size \name, . - \name
    .endm

    function mgz_divide
    mov (%rdi), %ecx
    mov 4(%rdi), %eax
    cltd
    .globl mgz_at_division
mgz_at_division:
    idiv %ecx
    add 8(%rdi), %eax
    ret
    end mgz_divide

    function mgz_illegal
    .globl mgz_at_ud2
mgz_at_ud2:
    ud2
    mov 20(%rdi), %eax
    add 24(%rdi), %eax
    ret
    end mgz_illegal

    function mgz_trap
    int3
    .globl mgz_after_trap
mgz_after_trap:
    mov 36(%rdi), %eax
    add 40(%rdi), %eax
    ret
    end mgz_trap

/* The load is at the entry, and three bytes long. */
    function mgz_skip
    mov (%rsi), %rax
    mov 44(%rdi), %ecx
    add %ecx, %eax
    add 48(%rdi), %eax
    ret
    end mgz_skip

    function mgz_go
    mov 44(%rdi), %ecx
    .globl mgz_at_load
mgz_at_load:
    mov (%rsi), %rax
    jmp 1f
    .globl mgz_elsewhere
mgz_elsewhere:
    mov $77, %rax
1:  add %ecx, %eax
    add 48(%rdi), %eax
    ret
    end mgz_go

/* A loop that is left and entered again by a handler. */
    function mgz_loop
    xor %eax, %eax
    mov $10, %edx
2:  add (%rdi), %rax
    add 8(%rdi), %rax
    .globl mgz_in_loop
mgz_in_loop:
    mov (%rsi), %rcx
    add 16(%rdi), %rax
    add 24(%rdi), %rax
    dec %edx
    jnz 2b
    ret
    end mgz_loop
    .section .note.GNU-stack,"",@progbits
