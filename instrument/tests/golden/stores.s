# Stores, which are recorded with --stores.
	.text
	.globl stores
	.type stores, @function
stores:
	.cfi_startproc
	mov (%rsi), %rax
	mov %rax, (%rdi)
	movq $0, 8(%rdi)
	mov %ecx, (%rdi,%rdx,4)
	ret
	.cfi_endproc
	.size stores, . - stores
