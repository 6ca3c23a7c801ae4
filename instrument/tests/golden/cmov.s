# A load that is done whether or not its result is taken.
	.text
	.globl cmov
	.type cmov, @function
cmov:
	.cfi_startproc
	mov (%rdi), %rax
	cmp %rax, (%rsi)
	cmovl (%rsi), %rax
	ret
	.cfi_endproc
	.size cmov, . - cmov
