# Functions of three bytes with filler behind them that something refers to, each in another way.
    .text
    .macro short name
    .p2align 4
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    xor %eax, %eax
    ret
    .cfi_endproc
    .size \name, . - \name
    nop
    .endm

    short nobody
    .p2align 4, 0x90

    short labelled
    .globl label
label:
    .fill 12, 1, 0x90

    short summed
    .fill 12, 1, 0x90

    short data
    .globl object
    .type object, @object
object:
    .fill 12, 1, 0x90
    .size object, 12

# A function with a label without a type, and one with data, that look like blocks to which nothing leads.
    .p2align 4
    .globl inside
    .type inside, @function
inside:
    .cfi_startproc
    mov (%rdi), %rax
    ret
    .globl other
other:
    mov 8(%rdi), %rax
    mov 16(%rdi), %rcx
    ret
    .globl number
    .type number, @object
number:
    mov $7, %rax
    ret
    .size number, . - number
    .cfi_endproc
    .size inside, . - inside

    .data
    .quad summed+4
    .quad number
