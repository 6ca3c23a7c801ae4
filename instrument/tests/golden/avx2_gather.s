# A vector gather: base, indices and mask are recorded.
	.text
	.globl avx2_gather
	.type avx2_gather, @function
avx2_gather:
	.cfi_startproc
	vmovdqu (%rsi), %ymm1
	vpcmpeqd %ymm2, %ymm2, %ymm2
	vpgatherdd %ymm2, (%rdi,%ymm1,4), %ymm0
	vmovdqu %ymm0, (%rdx)
	vzeroupper
	ret
	.cfi_endproc
	.size avx2_gather, . - avx2_gather
