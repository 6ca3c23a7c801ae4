# A loop over an array: the load is strided by 8.
	.text
	.globl strided
	.type strided, @function
strided:
	.cfi_startproc
	xor %eax, %eax
	xor %ecx, %ecx
	test %rsi, %rsi
	je 2f
1:	add (%rdi,%rcx,8), %rax
	inc %rcx
	cmp %rsi, %rcx
	jne 1b
2:	ret
	.cfi_endproc
	.size strided, . - strided
