// Code that goes into files of the pt flavour whose handlers look at faults, see faults.rs. Its bytes are copied: it refers to nothing but itself and, by
// distances from its start, to the words of its head, which faults.rs fills in.
//
// It must run at any moment: in handlers, in children of vfork, before constructors.

    .pushsection .rodata.mgz_faults, "a", @progbits
    .balign 16
    .globl mgz_faults_code
    .hidden mgz_faults_code
    .globl mgz_faults_sigaction
    .hidden mgz_faults_sigaction
    .globl mgz_faults_leaves
    .hidden mgz_faults_leaves
    .globl mgz_faults_thunks
    .hidden mgz_faults_thunks
    .globl mgz_faults_pushes
    .hidden mgz_faults_pushes
    .globl mgz_faults_pops
    .hidden mgz_faults_pops
    .globl mgz_faults_end
    .hidden mgz_faults_end

mgz_faults_code:
.Lmgz_faults_head:
    .long 0     // 0: the word that holds the address of the C library's sigaction
    .long 0     // 4: the handlers, 8 bytes each
    .long 0     // 8: the first clone
    .long 0     // 12: (no distance) bytes of all clones
    .long 0     // 16: the table
    .long 0     // 20: (no distance) groups in it
    .long 0     // 24: lowest handler to be replaced
    .long 0     // 28: (no distance) bytes of code that has such handlers; 0: all code

// int sigaction(int signal, const struct sigaction *new, struct sigaction *old): in place of the C library's. A handler that takes a context is
// replaced by its thunk, and a thunk in the old action by its handler.
mgz_faults_sigaction:
    endbr64
    push rbx
    push r12
    sub rsp, 168
    mov rbx, rdx
    lea r12, [rip + .Lmgz_faults_head]
    lea eax, [rdi - 1]
    cmp eax, 64
    jae 5f                              // no signal: nothing is read
    test rsi, rsi
    jz 5f
    mov r10, [rsi]
    cmp r10, 1
    jbe 5f                              // SIG_DFL, SIG_IGN
    test byte ptr [rsi + 136], 4        // SA_SIGINFO
    jz 5f
    mov ecx, [r12 + 28]
    test ecx, ecx
    jz 1f
    movsxd rax, dword ptr [r12 + 24]
    add rax, r12
    neg rax
    add rax, r10
    cmp rax, rcx
    jae 5f                              // it may outlive this file
1:  lea rax, [rip + .Lmgz_faults_thunks]
    neg rax
    add rax, r10
    cmp rax, 8*256
    jb 5f                               // a thunk already, from somebody who has asked the kernel
    mov r8, rdi
    mov rdi, rsp
    mov ecx, 19
    rep movsq
    mov rdi, r8
    mov rsi, rsp
    movsxd r8, dword ptr [r12 + 4]
    add r8, r12
    xor ecx, ecx
2:  mov rax, [r8 + 8*rcx]
    cmp rax, r10
    je 4f
    test rax, rax
    jnz 3f
    lock cmpxchg [r8 + 8*rcx], r10
    je 4f
    cmp rax, r10
    je 4f
3:  inc ecx
    cmp ecx, 256
    jb 2b
    jmp 5f                              // no room: this one sees clones
4:  lea rax, [rip + .Lmgz_faults_thunks]
    lea rax, [rax + 8*rcx]
    mov [rsp], rax
5:  mov rdx, rbx
    movsxd rax, dword ptr [r12]
    call [r12 + rax]
    test eax, eax
    jnz 6f
    test rbx, rbx
    jz 6f
    mov rcx, [rbx]
    lea rdx, [rip + .Lmgz_faults_thunks]
    sub rcx, rdx
    cmp rcx, 8*256
    jae 6f
    test cl, 7
    jnz 6f
    movsxd rdx, dword ptr [r12 + 4]
    add rdx, r12
    mov rcx, [rdx + rcx]
    mov [rbx], rcx
6:
mgz_faults_leaves:
    add rsp, 168
    pop r12
    pop rbx
    ret

    .balign 16, 0xcc
// Handlers as the kernel knows them: thunk n is of handler n.
mgz_faults_thunks:
.Lmgz_faults_thunks:
    .set .Lmgz_faults_n, 0
    .rept 256
    .byte 0xb0, .Lmgz_faults_n          // mov al, n
    .byte 0xe9                          // jmp
    .long .Lmgz_faults_show - . - 4
    .byte 0xcc
    .set .Lmgz_faults_n, .Lmgz_faults_n + 1
    .endr

// A handler's arguments lie in edi (signal), rsi (siginfo_t) and rdx (ucontext_t), which stay, as do the stack and all that a function leaves as it is: it may be another
// handler that calls this one, as a function.
.Lmgz_faults_show:
    movzx eax, al
    lea r8, [rip + .Lmgz_faults_head]
    movsxd r11, dword ptr [r8 + 4]
    add r11, r8
    mov r11, [r11 + 8*rax]
    test rsi, rsi
    jz 9f
    test rdx, rdx
    jz 9f
    mov r10, [rdx + 168]                // rip
    cmp edi, 5                          // SIGTRAP
    jne 2f
    cmp dword ptr [rsi + 8], 0          // si_code: sent by a process
    jle 2f
    // SI_KERNEL: an int3, and rip is behind it. A step is left alone: shown a function's start, it would go on at the entry jump, and so on for ever.
    cmp dword ptr [rsi + 8], 0x80
    jne 9f
    dec r10
2:  movsxd r9, dword ptr [r8 + 8]
    add r9, r8
    sub r10, r9                         // place in the clones
    mov eax, [r8 + 12]
    cmp r10, rax
    jae 9f
mgz_faults_pushes:
    push r11
    push rbx
    push r12
    push r13
    push r14
    mov r13, r9
    movsxd r9, dword ptr [r8 + 16]
    add r9, r8
    // The last group that begins at or before the place.
    xor ecx, ecx
    mov r11d, [r8 + 20]
3:  cmp ecx, r11d
    jae 5f
    lea eax, [rcx + r11]
    shr eax
    lea r12, [rax + 2*rax]
    mov r12d, [r9 + 4*r12]
    cmp r12, r10
    ja 4f
    lea ecx, [rax + 1]
    jmp 3b
4:  mov r11d, eax
    jmp 3b
5:  test ecx, ecx
    jz 8f
    lea rcx, [rcx + 2*rcx]
    lea r12, [r9 + 4*rcx - 12]
    mov eax, [r12]
    movsxd r11, dword ptr [r12 + 4]
    mov r14d, [r12 + 8]
    add r14, r9                         // steps
    add r13, rax
    sub r13, r11                        // place in the original
    xor ebx, ebx                        // 1: what is here has an entry jump over it
6:  movzx ecx, byte ptr [r14]
    inc r14
    test ecx, ecx
    jz 1f
    mov r12d, ecx
    shr r12d, 2
    and ecx, 3
    cmp ecx, 3
    je 7f
    test r12d, r12d
    jz .Lmgz_faults_far
    shl ecx, 3
    mov r11d, 0x000405                  // how much longer, by kind
    shr r11d, cl
    movsx r11, r11b
    jmp 5f
.Lmgz_faults_far:
    movzx r12d, word ptr [r14]
    add r14, 2
    jmp 4f
7:  test r12d, r12d
    jnz 4f
    movzx r12d, byte ptr [r14]
    inc r14
4:  movsx r11, byte ptr [r14]
    inc r14
5:  lea rcx, [rax + r12]                // the next station
    add r12, r13
    cmp r11d, -128
    je 7f
    sub r12, r11                        // its original
    cmp rcx, r10
    ja 4f
    xor ebx, ebx
    jmp 5f
7:  cmp rcx, r10
    ja 1f
    mov ebx, 1
5:  mov rax, rcx
    mov r13, r12
    jmp 6b
4:  sub r10, rax
    add r13, r10
    cmp r13, r12
    cmova r13, r12                      // what was put in counts to what follows
    jmp 2f
1:  sub r10, rax
    add r13, r10
2:  test ebx, ebx
    jnz 8f
    mov rax, [rdx + 168]
    cmp edi, 31
    ja 2f
    mov ecx, 0x800009b0                 // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS
    bt ecx, edi
    jnc 2f
    cmp dword ptr [rsi + 8], 0          // si_code: not sent by a process, so that there is si_addr
    jle 2f
    xor ecx, ecx
    cmp edi, 5
    sete cl
    add r13, rcx                        // behind the int3
    cmp [rsi + 16], rax                 // si_addr
    jne 2f
    mov [rsi + 16], r13
2:  mov [rdx + 168], r13
8:
mgz_faults_pops:
    pop r14
    pop r13
    pop r12
    pop rbx
    pop r11
9:  xor eax, eax
    jmp r11
mgz_faults_end:
    .popsection
