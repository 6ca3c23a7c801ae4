// A library that is loaded later, with an allocation site.
__asm__(".text\n.globl make_late\n.type make_late, @function\nmake_late: sub $8, %rsp\n call malloc@PLT\n"
        ".globl site_late\nsite_late: add $8, %rsp\n ret\n");
