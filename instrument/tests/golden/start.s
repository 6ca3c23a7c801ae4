# A static executable as with musl: an entry point, a system call.
	.text
	.globl _start
	.type _start, @function
_start:
	.cfi_startproc
	.cfi_undefined %rip
	xor %ebp, %ebp
	mov %rsp, %rdi
	and $-16, %rsp
	call main
	.cfi_endproc
	.size _start, . - _start
	.globl main
	.type main, @function
main:
	.cfi_startproc
	mov (%rdi), %rdi
	mov $231, %eax
	syscall
	hlt
	.cfi_endproc
	.size main, . - main
