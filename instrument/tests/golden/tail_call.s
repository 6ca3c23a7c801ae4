# A tail call: the jump leads into the clone of the other function.
	.text
	.globl first
	.type first, @function
first:
	.cfi_startproc
	mov (%rdi), %rdi
	jmp second
	.balign 16
	.cfi_endproc
	.size first, . - first
	.globl second
	.type second, @function
second:
	.cfi_startproc
	mov 8(%rdi), %rax
	ret
	.cfi_endproc
	.size second, . - second
