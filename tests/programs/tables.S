# long NAME(unsigned long x, const long *memory): case k = (x * 5 + 3) mod 7 gives memory[k] + 3 k + 1, the default ~memory[8] (tables.c: expected).
    .text

.macro begin name
    .p2align 4
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
.endm

# The cases behind a function's jump, in an order that is not theirs.
.macro cases name
\name\()_default:
    movq 64(%rsi), %rax
    notq %rax
    ret
    .irp k, 3, 0, 6, 2, 5, 1, 4
\name\()_\k:
    movq 8*\k(%rsi), %rax
    addq $(\k*3+1), %rax
    ret
    .endr
    .cfi_endproc
    .size \name, .-\name
.endm

# (x * 5 + 3) mod 7 for so many x, then numbers that are no index.
.macro indices name, count, kind=.byte
    .set at, 0
\name:
    .rept \count
    \kind (at * 5 + 3) % 7
    .set at, at + 1
    .endr
    .byte 0xe7, 0x9d, 0xff, 0x7f
.endm

# Distances from a label.
.macro distances name, from, kind=.long
    .irp k, 0, 1, 2, 3, 4, 5, 6
    \kind \name\()_\k - \from
    .endr
.endm

.macro rodata
    .section .rodata
    .p2align 3
.endm

# The usual one, with a table of indices in front.
    begin checked
    cmpq $59, %rdi
    ja checked_default
    movl %edi, %eax
    leaq checked_indices(%rip), %rdx
    movzbl (%rdx,%rax), %eax
    leaq checked_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases checked
    rodata
    indices checked_indices, 60
    .p2align 2
checked_table:
    distances checked, checked_table
    .text

# Indices of two bytes.
    begin word_indices
    cmpq $60, %rdi
    jae word_indices_default
    leaq word_indices_indices(%rip), %rdx
    movzwl (%rdx,%rdi,2), %ecx
    leaq word_indices_table(%rip), %rdx
    movslq (%rdx,%rcx,4), %rcx
    addq %rdx, %rcx
    jmp *%rcx
    cases word_indices
    rodata
    indices word_indices_indices, 60, .short
    .p2align 2
word_indices_table:
    distances word_indices, word_indices_table
    .text

# The index is checked, too, in another register's low byte.
    begin checked_behind
    movl $7, %eax
    cmpq $59, %rdi
    ja 1f
    leaq checked_behind_indices(%rip), %rdx
    movb (%rdx,%rdi), %al
1:  cmpb $6, %al
    ja checked_behind_default
    movzbl %al, %eax
    leaq checked_behind_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases checked_behind
    rodata
    indices checked_behind_indices, 60
    .p2align 2
checked_behind_table:
    distances checked_behind, checked_behind_table
    .text

# As without optimisation: by way of the stack.
    begin through_stack
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    movq %rdi, -8(%rbp)
    cmpq $59, -8(%rbp)
    ja 1f
    movq -8(%rbp), %rax
    leaq through_stack_indices(%rip), %rdx
    movzbl (%rax,%rdx), %eax
    movb %al, -9(%rbp)
    movzbl -9(%rbp), %eax
    movl %eax, -16(%rbp)
    movl -16(%rbp), %eax
    leaq 0(,%rax,4), %rdx
    leaq through_stack_table(%rip), %rax
    movl (%rdx,%rax), %eax
    cltq
    leaq through_stack_table(%rip), %rdx
    addq %rdx, %rax
    popq %rbp
    .cfi_remember_state
    .cfi_def_cfa %rsp, 8
    jmp *%rax
1:  .cfi_restore_state
    popq %rbp
    .cfi_def_cfa %rsp, 8
    cases through_stack
    rodata
    indices through_stack_indices, 60
    .p2align 2
through_stack_table:
    distances through_stack, through_stack_table
    .text

# Two signed comparisons.
    begin signed_check
    testl %edi, %edi
    js signed_check_default
    cmpl $60, %edi
    jge signed_check_default
    movslq %edi, %rdi
    leaq signed_check_indices(%rip), %rax
    movsbl (%rdi,%rax), %eax
    leaq signed_check_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases signed_check
    rodata
    indices signed_check_indices, 60
    .p2align 2
signed_check_table:
    distances signed_check, signed_check_table
    .text

# The jump is where the comparison leads, the default behind it; the table's address is there first.
    begin other_way
    leaq other_way_table(%rip), %r8
    leaq other_way_indices(%rip), %r9
    cmpq $59, %rdi
    jbe 1f
    jmp other_way_default
    .p2align 4
1:  movzbl (%r9,%rdi), %r10d
    movslq (%r8,%r10,4), %r11
    addq %r8, %r11
    jmp *%r11
    cases other_way
    rodata
    indices other_way_indices, 60
    .p2align 2
other_way_table:
    distances other_way, other_way_table
    .text

# Two switches by the same table of indices; the first one's cases lead to the second.
    begin twins
    cmpq $59, %rdi
    ja twins_default
    leaq twins_indices(%rip), %rdx
    movzbl (%rdx,%rdi), %ecx
    leaq twins_first(%rip), %rdx
    movslq (%rdx,%rcx,4), %rax
    addq %rdx, %rax
    jmp *%rax
    .irp k, 0, 1, 2, 3, 4, 5, 6
twins_first_\k:
    movl $(\k+100), %r8d
    jmp 1f
    .endr
1:  leaq -100(%rcx), %r9
    addq %r8, %r9
    shrq %r9
    leaq twins_indices(%rip), %rdx
    movzbl (%rdx,%rdi), %r10d
    cmpq %r9, %r10
    jne twins_default
    leaq twins_second(%rip), %rdx
    movslq (%rdx,%r10,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases twins
    rodata
    indices twins_indices, 60
    .p2align 2
twins_first:
    distances twins_first, twins_first
twins_second:
    distances twins, twins_second
    .text

# A byte needs no check: all 256 have an index, and every index a place.
    begin whole_byte
    movzbl %dil, %eax
    leaq whole_byte_indices(%rip), %rdx
    movzbl (%rdx,%rax), %eax
    leaq whole_byte_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases whole_byte
    rodata
    indices whole_byte_indices, 256
    .p2align 2
whole_byte_table:
    distances whole_byte, whole_byte_table
    .long 0x7ffffff0, 0x13579bdf
    .text

# switch (x & 7), every case there.
    begin masked
    andl $7, %edi
    leaq masked_table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases masked
    rodata
    .p2align 2
masked_table:
    distances masked, masked_table
    .long masked_0 - masked_table
    .long 0x7ffffff0, 0x13579bdf
    .text

# switch (indices[x & 15]), nothing checked.
    begin masked_bytes
    movl %edi, %eax
    andl $15, %eax
    leaq masked_bytes_indices(%rip), %rdx
    movzbl (%rdx,%rax), %eax
    leaq masked_bytes_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases masked_bytes
    rodata
    indices masked_bytes_indices, 16
    .p2align 2
masked_bytes_table:
    distances masked_bytes, masked_bytes_table
    .long 0x7ffffff0, 0x13579bdf
    .text

# Nothing is known of x: the default is said to be unreachable.
    begin unreachable
    leaq unreachable_indices(%rip), %rdx
    movzbl (%rdx,%rdi), %eax
    leaq unreachable_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases unreachable
    rodata
    indices unreachable_indices, 60
    .p2align 2
unreachable_table:
    distances unreachable, unreachable_table
    .long 0x7ffffff0, 0x13579bdf
    .text

# Addresses in place of distances, read by the jump itself.
    begin pointers
    cmpq $59, %rdi
    ja pointers_default
#if defined(__PIC__) || defined(__PIE__)
    leaq pointers_indices(%rip), %rdx
    movzbl (%rdx,%rdi), %eax
    leaq pointers_table(%rip), %rdx
    jmp *(%rdx,%rax,8)
#else
    movzbl pointers_indices(%rdi), %eax
    jmp *pointers_table(,%rax,8)
#endif
    cases pointers
    rodata
    indices pointers_indices, 60
    .section .data.rel.ro, "aw", @progbits
    .p2align 3
pointers_table:
    .irp k, 0, 1, 2, 3, 4, 5, 6
    .quad pointers_\k
    .endr
    .text

# As MSVC does it: both tables behind the function's code, distances without sign from the image's beginning.
# (Not right behind a function: of one whose end somebody makes targets of, no one knows where it is entered.)
    .skip 8, 0xcc
image:
    .byte 0x4d, 0x5a, 0x90, 0
behind_image:
    begin image_base
    cmpq $59, %rdi
    ja image_base_default
    leaq image(%rip), %rdx
    movslq %edi, %rax
    movzbl image_base_indices - image(%rdx,%rax), %eax
    movl image_base_table - image(%rdx,%rax,4), %ecx
    addq %rdx, %rcx
    jmp *%rcx
    cases image_base
    .p2align 2
image_base_table:
    distances image_base, image
    indices image_base_indices, 60

    begin image_masked
    andl $15, %edi
    leaq image(%rip), %r8
    movzbl image_masked_indices - image(%r8,%rdi), %eax
    movl image_masked_table - image(%r8,%rax,4), %ecx
    addq %r8, %rcx
    jmp *%rcx
    cases image_masked
    .p2align 2
image_masked_table:
    distances image_masked, image
    indices image_masked_indices, 16

# Distances of one byte, and of two.
    begin bytes
    cmpq $6, %rdi
    ja bytes_default
    leaq bytes_table(%rip), %rdx
    movzbl (%rdx,%rdi), %eax
    leaq bytes_default(%rip), %rdx
    addq %rdx, %rax
    jmp *%rax
    cases bytes
    rodata
bytes_table:
    distances bytes, bytes_default, .byte
    .byte 1, 2, 5, 9
    .text

    begin words
    cmpq $6, %rdi
    ja words_default
    leaq words_table(%rip), %rdx
    movswq (%rdx,%rdi,2), %rax
    leaq words(%rip), %rdx
    leaq (%rdx,%rax), %rax
    jmp *%rax
    cases words
    rodata
words_table:
    distances words, words, .short
    .short 1, 2, 5, 9
    .text

# Distances that are subtracted.
    begin backwards
    cmpq $6, %rdi
    ja backwards_default
    leaq backwards_table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    leaq behind_image(%rip), %rdx
    subq %rax, %rdx
    jmp *%rdx
    cases backwards
    rodata
    .p2align 2
backwards_table:
    .irp k, 0, 1, 2, 3, 4, 5, 6
    .long behind_image - backwards_\k
    .endr
    .text

# Bounded by what a shift leaves.
    begin by_shift
    movl %edi, %eax
    shll $27, %eax
    shrl $30, %eax
    leaq by_shift_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases by_shift
    rodata
    .p2align 2
by_shift_table:
    .irp k, 1, 2, 3, 4
    .long by_shift_\k - by_shift_table
    .endr
    .long 0x7ffffff0, 0x13579bdf
    .text

# One table of indices leads into another.
    begin nested
    cmpq $59, %rdi
    ja nested_default
    leaq nested_outer(%rip), %rdx
    movzbl (%rdx,%rdi), %eax
    leaq nested_inner(%rip), %rdx
    movzbl (%rdx,%rax), %eax
    leaq nested_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases nested
    rodata
    .set at, 0
nested_outer:
    .rept 60
    .byte 6 - (at * 5 + 3) % 7
    .set at, at + 1
    .endr
    .byte 0xe7, 0x9d, 0xff
nested_inner:
    .byte 6, 5, 4, 3, 2, 1, 0, 0xff, 0x7f
    .p2align 2
nested_table:
    distances nested, nested_table
    .text

# The check leaves out less than the table has: beyond the first 40, x is taken to what it is worth.
    begin partly
    cmpq $59, %rdi
    ja partly_default
    cmpq $40, %rdi
    jb 1f
    subq $35, %rdi
1:  leaq partly_indices(%rip), %rdx
    movzbl (%rdx,%rdi), %eax
    leaq partly_table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    addq %rdx, %rax
    jmp *%rax
    cases partly
    rodata
    indices partly_indices, 40
    .p2align 2
partly_table:
    distances partly, partly_table
    .text

# long looped(unsigned long n, const long *memory, const unsigned char *code): an interpreter; the tables' addresses stay in registers.
    begin looped
    pushq %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    xorl %eax, %eax
    xorl %ebx, %ebx
    leaq looped_indices(%rip), %r8
    leaq looped_table(%rip), %r9
    .p2align 4
1:  movzbl (%rdx,%rbx), %ecx
    movzbl (%r8,%rcx), %ecx
    movslq (%r9,%rcx,4), %rcx
    addq %r9, %rcx
    leaq (%rax,%rax,2), %rax
    jmp *%rcx
    .irp k, 6, 1, 4, 0, 5, 2, 3
looped_\k:
    addq 8*\k(%rsi), %rax
    addq $(\k*3+1), %rax
    jmp 2f
    .endr
2:  incq %rbx
    cmpq %rdi, %rbx
    jb 1b
    popq %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size looped, .-looped
    rodata
    indices looped_indices, 256
    .p2align 2
looped_table:
    distances looped, looped_table
    .section .note.GNU-stack, "", @progbits
