# One function per case of recording; what is expected is in analysis.rs.
	.text
	.macro function name
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	.endm
	.macro done name
	.cfi_endproc
	.size \name, . - \name
	.endm

	function shared_base
	mov (%rdi), %rax
	mov 8(%rdi), %rcx
	add $16, %rdi
	mov (%rdi), %rdx
	lea -4(%rdi), %r8
	mov (%r8), %esi
	ret
	done shared_base

	function changed_base
	mov (%rax), %rax
	mov (%rax), %rax
	ret
	done changed_base

	function partly_changed_base
	mov (%rdi), %rax
	movb $1, %dil
	mov (%rdi), %rax
	ret
	done partly_changed_base

	function across_a_call
	mov (%rbx), %rax
	call across_a_call
	mov (%rbx), %rax
	ret
	done across_a_call

	function shared_index
	mov (%rdi,%rsi,4), %eax
	mov 4(%rdi,%rsi,4), %ecx
	inc %rsi
	mov (%rdi,%rsi,4), %edx
	ret
	done shared_index

	function over_blocks
	lea 8(%rdi), %rsi
	lea -64(%rdi), %r8
1:	mov (%rdi,%rcx), %rax
	mov (%rsi,%rcx), %rdx
	mov (%r8,%rcx), %r9
	add $16, %rcx
	cmp %r10, %rcx
	jne 1b
	ret
	done over_blocks

	function in_step
	mov %rdi, %rsi
1:	mov (%rdi), %rax
	add $16, %rdi
	add $16, %rsi
	mov -24(%rsi), %rdx
	cmp %r10, %rdi
	jne 1b
	ret
	done in_step

	function out_of_step
	mov %rdi, %rsi
1:	mov (%rdi), %rax
	add $16, %rdi
	mov -24(%rsi), %rdx
	cmp %r10, %rdi
	jne 1b
	ret
	done out_of_step

	function known_parts
	mov (%rdi), %rax
	mov (%rdi,%rsi,8), %rax
	mov (%rsi), %rax
	ret
	done known_parts

	function implied
	mov 8(%rsp), %rax
	mov (%rdi), %rax
	mov 16(%rsp), %rax
	ret
	done implied

	function proxy
	push %rbx
	mov 24(%rsp), %rax
	mov 32(%rsp), %rax
	pop %rbx
	ret
	done proxy

	function static_proxy
	mov static_proxy(%rip), %eax
	ret
	done static_proxy

	function copies
	rep movsb
	mov (%rdx), %rax
	ret
	done copies

	function compares
	repe cmpsb
	ret
	done compares

	function backwards
	std
	lodsb
	cld
	ret
	done backwards

	function steps
	lodsq
	lodsq
	ret
	done steps

	function thread_local
	mov %fs:16(%rdi), %rax
	ret
	done thread_local

	function no_register
	cmp (%rdi,%rsi,8), %r8
	jmp shared_base
	done no_register

	function own_register
	mov (%rdi,%rsi,8), %rax
	jmp shared_base
	done own_register

	function short_address
	mov 4(%edi), %eax
	ret
	done short_address

	function stack_push
	mov (%rdi), %rax
	push 8(%rdi)
	pop 16(%rdi)
	ret
	done stack_push


# Two registers that are known at the first load; a third load's that is not.
	function slot_of_two
	movq    (%rdi), %rax
	movq    (%rsi), %rcx
	movq    (%rax), %rdx
	movq    (%rcx), %r8
	ret
	done slot_of_two

# The second load's register moves by a constant before it.
	function slot_of_two_moved
	movq    (%rdi), %rax
	addq    $24, %rsi
	movq    (%rsi), %rcx
	ret
	done slot_of_two_moved

# A count has all of its bits: it shares no slot.
	function slot_of_one
	movq    (%rdx), %rax
	rep movsb
	ret
	done slot_of_one

# Constant loads before a branch, both ways of which record something.
	function folded
	movq    8(%rsp), %rax
	cmpq    16(%rsp), %rax
	je      1f
	movq    (%rdi), %rax
	ret
1:	movq    (%rsi), %rax
	ret
	done folded

# One way calls before it records.
	function not_folded
	movq    8(%rsp), %rax
	testq   %rax, %rax
	je      1f
	movq    (%rdi), %rax
	ret
1:	call    folded
	movq    (%rsi), %rax
	ret
	done not_folded

# Somebody else leads to one of the ways, too.
	function not_folded_either
	testq   %rdx, %rdx
	je      1f
	movq    8(%rsp), %rax
	testq   %rax, %rax
	je      1f
	movq    (%rdi), %rax
	ret
1:	movq    (%rsi), %rax
	ret
	done not_folded_either

	.section .note.GNU-stack,"",@progbits
