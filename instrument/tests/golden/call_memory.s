# Calls by way of memory: of a table of functions, and of a function pointer.
	.text
	.globl call_memory
	.type call_memory, @function
call_memory:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov %rdi, %rbx
	mov (%rdi), %rax
	call *16(%rax)
	mov 8(%rbx), %rdi
	call *pointer(%rip)
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size call_memory, . - call_memory
	.data
	.balign 8
pointer: .quad 0
