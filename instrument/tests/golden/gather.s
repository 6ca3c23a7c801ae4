# A loop over indices: the index is strided, what it leads to irregular.
	.text
	.globl gather
	.type gather, @function
gather:
	.cfi_startproc
	xor %eax, %eax
	xor %ecx, %ecx
1:	movslq (%rsi,%rcx,4), %r8
	add (%rdi,%r8,8), %rax
	inc %rcx
	cmp %rdx, %rcx
	jb 1b
	ret
	.cfi_endproc
	.size gather, . - gather
