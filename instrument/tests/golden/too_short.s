# A function without room for a jump: it is entered through its callers only.
	.text
	.globl short
	.type short, @function
short:
	.cfi_startproc
	pop %rax
	jmp *%rax
	.cfi_endproc
	.size short, . - short
	.globl data_behind
	.type data_behind, @function
data_behind:
	.cfi_startproc
	mov (%rdi), %eax
	ret
	.cfi_endproc
	.size data_behind, . - data_behind
	.byte 0x12, 0x34, 0x56, 0x78
	.globl caller
	.type caller, @function
caller:
	.cfi_startproc
	mov 8(%rsi), %rdi
	call data_behind
	ret
	.cfi_endproc
	.size caller, . - caller
