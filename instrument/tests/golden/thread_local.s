# Loads relative to %fs: the address is told with the base of the segment.
	.text
	.globl thread_local
	.type thread_local, @function
thread_local:
	.cfi_startproc
	mov %fs:0, %rax
	mov %fs:-8, %rcx
	mov %fs:(%rdi), %rdx
	mov (%rcx,%rdx), %rax
	ret
	.cfi_endproc
	.size thread_local, . - thread_local
