# A call of another file: it stays as it is, and what it may change is not free.
	.text
	.globl plt
	.type plt, @function
plt:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov %rdi, %rbx
	mov (%rdi), %rdi
	call malloc@PLT
	add (%rbx), %rax
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size plt, . - plt
