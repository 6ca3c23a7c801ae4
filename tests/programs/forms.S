/* Instruction forms that compilers rarely choose, each on its own data: tls and absolute addressing, memory
   operands of push, call and jmp, high byte registers, address size prefix, loop and jrcxz, partial registers as
   destinations, flags live across loads, red zone use, ops on rsp-relative and index-only operands. */
        .intel_syntax noprefix
        .globl  forms
        .type   forms, @function
        .section .tbss, "awT", @nobits
        .balign 8
tls_word: .zero 8
        .data
        .balign 64
table:  .quad 11, 22, 33, 44, 55, 66, 77, 88
bytes:  .byte 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
        .text
forms:
        .cfi_startproc
        push    rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        push    rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        xor     eax, eax
        lea     rbx, table[rip]
        mov     ecx, 8
1:      add     rax, [rbx+rcx*8-8]
        loop    1b
        jrcxz   2f
        ud2
2:      mov     qword ptr fs:tls_word@tpoff, 5
        add     rax, fs:tls_word@tpoff
        mov     rdx, fs:0
        add     rax, [rdx+tls_word@tpoff]
        push    qword ptr [rbx+16]
        pop     rdx
        add     rax, rdx
        mov     ah, bytes[rip+3]
        mov     dl, [rbx+rcx+64]
        mov     dx, [rbx+rcx+66]
        add     rax, rdx
        stc
        adc     rax, [rbx+8]
        cmp     rax, [rbx+24]
        mov     edx, [rbx+32]
        cmovb   edx, [rbx+40]
        seta    dl
        add     rax, rdx
        mov     [rsp-8], rax
        mov     rdx, [rsp-8]
        mov     [rsp-64], rdx
        mov     ebp, [rsp-64]
        add     rax, rbp
        xchg    rax, [rsp-64]
        imul    rdx, [rbx+48], 3
        add     rax, rdx
        bsf     rdx, [rbx+56]
        add     rax, rdx
        movzx   edx, byte ptr [rbx+65]
        add     rax, rdx
        mov     rdx, [rbx]
        mov     rdx, [rbx+rdx*8-88+40]
        add     rax, rdx
        mov     rbp, rbx
        mov     rbp, [rbp+8]
        add     rax, rbp
        mov     ecx, 1
        mov     rcx, [rbx+rcx*8]
        xor     rax, rcx
        lea     rdx, 3f[rip]
        mov     [rsp-16], rdx
        jmp     qword ptr [rsp-16]
        ud2
3:      lea     rdx, leaf[rip]
        push    rdx
        .cfi_adjust_cfa_offset 8
        call    qword ptr [rsp]
        add     rsp, 8
        .cfi_adjust_cfa_offset -8
        add     rax, rdx
        pop     rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        pop     rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   forms, .-forms

        .type   leaf, @function
leaf:   .cfi_startproc
        mov     rdx, [rsp+8]
        sub     rdx, [rsp+8]
        lea     rsi, bytes[rip]
        movzx   ecx, byte ptr [rsi+2]
4:      movsx   r8, byte ptr [rsi+rcx]
        add     rdx, r8
        dec     ecx
        jns     4b
        ret
        .cfi_endproc
        .size   leaf, .-leaf
        .section .note.GNU-stack, "", @progbits
