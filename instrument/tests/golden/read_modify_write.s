# Instructions that read and write one place.
	.text
	.globl read_modify_write
	.type read_modify_write, @function
read_modify_write:
	.cfi_startproc
	incl (%rdi)
	lock xadd %rax, 8(%rdi)
	orl $1, (%rsi,%rdx)
	ret
	.cfi_endproc
	.size read_modify_write, . - read_modify_write
