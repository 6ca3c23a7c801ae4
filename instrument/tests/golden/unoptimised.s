# Code as compilers make it without optimising: values live on the stack.
	.text
	.globl unoptimised
	.type unoptimised, @function
unoptimised:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov %rdi, -24(%rbp)
	mov %esi, -28(%rbp)
	movl $0, -4(%rbp)
	movl $0, -8(%rbp)
	jmp 2f
1:	mov -8(%rbp), %eax
	cltq
	lea 0(,%rax,4), %rdx
	mov -24(%rbp), %rax
	add %rdx, %rax
	mov (%rax), %eax
	add %eax, -4(%rbp)
	addl $1, -8(%rbp)
2:	mov -8(%rbp), %eax
	cmp -28(%rbp), %eax
	jl 1b
	mov -4(%rbp), %eax
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size unoptimised, . - unoptimised
