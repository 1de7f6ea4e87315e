/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * void culvert__fiber_switch(void **save, void *load)
 *
 * Pushes what the ABI lets a callee keep, stores the stack pointer in *save, takes `load` as the
 * stack pointer and pops the same from there. fiber.c lays out the first frame of a new fiber to
 * match, and culvert__fiber_start is where that frame "returns" to: it calls fn(arg).
 */
#if defined(CULVERT_FIBER_UCONTEXT)
/* fiber.c uses ucontext instead. */

#elif defined(__x86_64__)
    .text
    .globl culvert__fiber_switch
    .hidden culvert__fiber_switch
    .type culvert__fiber_switch, @function
    .align 16
culvert__fiber_switch:
    .cfi_startproc
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $8, %rsp
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $8, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
    .size culvert__fiber_switch, . - culvert__fiber_switch

    .globl culvert__fiber_start
    .hidden culvert__fiber_start
    .type culvert__fiber_start, @function
    .align 16
culvert__fiber_start:                   /* r12: fn, r13: arg */
    .cfi_startproc
    .cfi_undefined rip                  /* nothing to unwind to */
    movq %r13, %rdi
    xorl %ebp, %ebp
    call *%r12
    ud2
    .cfi_endproc
    .size culvert__fiber_start, . - culvert__fiber_start

#elif defined(__aarch64__)
    .text
    .globl culvert__fiber_switch
    .hidden culvert__fiber_switch
    .type culvert__fiber_switch, %function
    .align 4
culvert__fiber_switch:
    .cfi_startproc
    sub sp, sp, #176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    ldr x9, [sp, #160]
    msr fpcr, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
    .cfi_endproc
    .size culvert__fiber_switch, . - culvert__fiber_switch

    .globl culvert__fiber_start
    .hidden culvert__fiber_start
    .type culvert__fiber_start, %function
    .align 4
culvert__fiber_start:                   /* x19: fn, x20: arg */
    .cfi_startproc
    .cfi_undefined x30
    mov x0, x20
    mov x29, xzr
    blr x19
    brk #1
    .cfi_endproc
    .size culvert__fiber_start, . - culvert__fiber_start
#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
