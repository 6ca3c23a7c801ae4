# A call in a try block: the exception table of the clone has landing pads there.
	.text
	.globl catches
	.type catches, @function
catches:
	.cfi_startproc
	.cfi_personality 0x9b, DW.ref
	.cfi_lsda 0x1b, exceptions
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov %rdi, %rbx
	mov (%rdi), %rdi
1:	call may_throw@PLT
2:	mov 8(%rbx), %eax
	pop %rbx
	.cfi_remember_state
	.cfi_def_cfa_offset 8
	ret
3:	.cfi_restore_state
	mov %rax, %rdi
	call __cxa_begin_catch@PLT
	mov (%rax), %ebx
	call __cxa_end_catch@PLT
	mov %ebx, %eax
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
4:	.cfi_endproc
	.size catches, . - catches
	.section .gcc_except_table,"a",@progbits
	.balign 4
exceptions:
	.byte 0xff
	.byte 0x9b
	.uleb128 types - 5f
5:	.byte 0x01
	.uleb128 7f - 6f
6:	.uleb128 1b - catches
	.uleb128 2b - 1b
	.uleb128 3b - catches
	.uleb128 0x1
	.uleb128 2b - catches
	.uleb128 4b - 2b
	.uleb128 0
	.uleb128 0
7:	.byte 1
	.byte 0
	.balign 4
	.long 0
types:
	.section .data.rel,"aw"
	.balign 8
DW.ref:
	.quad __gxx_personality_v0
