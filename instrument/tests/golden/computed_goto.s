# An interpreter: jumps by a table of addresses in data.
	.text
	.globl interpreter
	.type interpreter, @function
interpreter:
	.cfi_startproc
	lea labels(%rip), %rdx
	movzbl (%rdi), %eax
	inc %rdi
	jmp *(%rdx,%rax,8)
1:	add $1, %rsi
	movzbl (%rdi), %eax
	inc %rdi
	jmp *(%rdx,%rax,8)
2:	add (%rsi), %rcx
	movzbl (%rdi), %eax
	inc %rdi
	jmp *(%rdx,%rax,8)
3:	mov %rcx, %rax
	ret
	.cfi_endproc
	.size interpreter, . - interpreter
	.section .data.rel.ro,"aw"
	.balign 8
labels:
	.quad 1b
	.quad 2b
	.quad 3b
