"""Tests of inline_ideal.py: `python3 -m unittest discover benches`."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from inline_ideal import Rewriter, Unknown

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")


def rewrite(line, **options):
    """The instructions that replace one line, tabs as blanks."""
    return [x.strip().replace("\t", " ") for x in Rewriter(**options).line("\t" + line)]


class Lines(unittest.TestCase):
    def test_base_only_records_the_base(self):
        self.assertEqual(rewrite("movq\t8(%rdx), %rax"), ["ptwrite %rdx", "movq 8(%rdx), %rax"])
        self.assertEqual(rewrite("addsd\t(%r13), %xmm1"), ["ptwrite %r13", "addsd (%r13), %xmm1"])
        self.assertEqual(rewrite("movq\t(%rax), %rax"), ["ptwrite %rax", "movq (%rax), %rax"])

    def test_index_only_records_the_index(self):
        self.assertEqual(
            rewrite("movl\ttable(,%rcx,4), %eax"), ["ptwrite %rcx", "movl table(,%rcx,4), %eax"]
        )

    def test_a_load_that_overwrites_a_register_lends_it_to_its_address(self):
        self.assertEqual(
            rewrite("movl\t(%rsi,%rcx,4), %edx"),
            ["leaq (%rsi,%rcx,4), %rdx", "ptwrite %rdx", "movl (%rsi,%rcx,4), %edx"],
        )
        self.assertEqual(
            rewrite("movzbl\t1(%rax,%rcx), %eax"),
            ["leaq 1(%rax,%rcx), %rax", "ptwrite %rax", "movzbl (%rax), %eax"],
        )
        self.assertEqual(
            rewrite("movslq\t(%rdx,%r8,4), %r8"),
            ["leaq (%rdx,%r8,4), %r8", "ptwrite %r8", "movslq (%r8), %r8"],
        )

    def test_other_forms_with_an_index_take_two(self):
        for line in (
            "addl\t(%rsi,%rcx,4), %edx",
            "movb\t(%rsi,%rcx), %dl",
            "movups\t(%rsi,%rcx), %xmm0",
            "cmpl\t$3, (%rsi,%rcx)",
            "cmovl\t(%rsi,%rcx), %eax",
            "movzbw\t(%rsi,%rcx), %ax",
        ):
            text = line.replace("\t", " ")
            self.assertEqual(rewrite(line), ["ptwrite %rsi", "ptwrite %rcx", text])
            self.assertEqual(rewrite(line, form="one"), ["ptwrite %rsi", text])

    def test_read_modify_write_and_compare_are_loads(self):
        for line in (
            "addl\t$1, (%rax)",
            "cmpb\t$97, (%rax)",
            "incl\t(%rax)",
            "xchgq\t%rdx, (%rax)",
            "lock addl\t$1, (%rax)",
            "notq\t(%rax)",
            "imull\t$3, (%rax), %edx",
            "testb\t$1, (%rax)",
            "cmpq\t%rdx, (%rax)",
            "fldl\t(%rax)",
            "pushq\t(%rax)",
            "call\t*8(%rax)",
        ):
            self.assertEqual(rewrite(line)[0], "ptwrite %rax", line)

    def test_stores_and_others_are_not(self):
        for line in (
            "movq\t%rax, (%rdx)",
            "movl\t$0, 4(%rdx,%rcx)",
            "movups\t%xmm0, (%rdx)",
            "sete\t(%rax)",
            "fstpl\t(%rax)",
            "leaq\t(%rax,%rcx), %rdx",
            "prefetcht0\t(%rax)",
            "nopw\t0(%rax,%rax,1)",
            "rep stosq",
            "pextrd\t$1, %xmm0, (%rax)",
            "movss\t%xmm0, (%rax)",
            "jmp\t*%rax",
            "call\tmemcpy@PLT",
            "jne\t.L4",
            "addl\t%eax, %edx",
            "ret",
            "popq\t%rbx",
            "movnti\t%eax, (%rdx)",
            "movhps\t%xmm1, (%rdi)",
        ):
            self.assertEqual(rewrite(line), [line.replace("\t", " ")], line)

    def test_constant_loads_get_no_record(self):
        for line in (
            "movq\t8(%rsp), %rax",
            "movsd\t.LC0(%rip), %xmm0",
            "movq\t%fs:40, %rax",
            "movl\tglobal, %eax",
            "call\t*puts@GOTPCREL(%rip)",
        ):
            self.assertEqual(rewrite(line), [line.replace("\t", " ")], line)
        self.assertEqual(len(rewrite("movl\t8(%rsp,%rax,4), %edx")), 3)

    def test_the_frame_pointer_holds_until_the_next_function(self):
        r = Rewriter()
        self.assertEqual(len(r.line("\tmovq\t-8(%rbp), %rax")), 2)
        r.line("\tmovq\t%rsp, %rbp")
        self.assertEqual(len(r.line("\tmovq\t-8(%rbp), %rax")), 1)
        r.line(".L4:")
        self.assertEqual(len(r.line("\tmovq\t-8(%rbp), %rax")), 1)
        r.line("next:")
        self.assertEqual(len(r.line("\tmovq\t-8(%rbp), %rax")), 2)

    def test_string_moves_record_pointer_and_count(self):
        self.assertEqual(rewrite("rep movsq"), ["ptwrite %rsi", "ptwrite %rcx", "rep movsq"])
        self.assertEqual(rewrite("rep; movsq")[:2], ["ptwrite %rsi", "ptwrite %rcx"])
        self.assertEqual(rewrite("movsd\t(%rax), %xmm0"), ["ptwrite %rax", "movsd (%rax), %xmm0"])

    def test_what_is_in_no_list_is_an_error(self):
        for line in (
            "vgatherdpd\t%ymm2, (%rax,%xmm1,8), %ymm0",
            "frobnicate\t(%rax), %eax",
            "movq\t%fs:(%rax), %rdx",
            "repz cmpsb",
        ):
            with self.assertRaises(Unknown, msg=line):
                rewrite(line)

    def test_directives_labels_and_comments_stay(self):
        for line in (
            "\t.quad\t.L3",
            ".L3:",
            "main:",
            "# (%rax)",
            "\t.loc 1 2 3",
            '\t.string "(%rax)"',
        ):
            self.assertEqual(Rewriter().line(line), [line])


@unittest.skipUnless(shutil.which("gcc"), "needs gcc")
class Kernels(unittest.TestCase):
    def test_a_nop_is_as_long_as_a_ptwrite(self):
        with tempfile.TemporaryDirectory() as folder:
            sizes = []
            for nop in (False, True):
                r = Rewriter(nop=nop)
                source = os.path.join(folder, "a.s")
                with open(source, "w") as f:
                    f.write(
                        "".join(
                            r.ptwrite("%" + reg) + "\n"
                            for reg in [
                                "rax",
                                "rbx",
                                "rcx",
                                "rdx",
                                "rsi",
                                "rdi",
                                "rbp",
                                "rsp",
                                "r8",
                                "r12",
                                "r13",
                                "r15",
                            ]
                        )
                    )
                subprocess.run(["gcc", "-c", source, "-o", source + ".o"], check=True)
                subprocess.run(
                    ["objcopy", "-O", "binary", "-j", ".text", source + ".o", source + ".bin"],
                    check=True,
                )
                sizes.append(os.path.getsize(source + ".bin"))
            self.assertEqual(sizes, [60, 60])

    def test_every_kernel_computes_what_it_did(self):
        for name in sorted(os.listdir(KERNELS)):
            if not name.endswith(".c"):
                continue
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                plain, changed, asm = (os.path.join(folder, x) for x in ("plain", "changed", "k.s"))
                subprocess.run(["gcc", "-O3", os.path.join(KERNELS, name), "-o", plain], check=True)
                subprocess.run(
                    ["gcc", "-O3", "-S", os.path.join(KERNELS, name), "-o", asm], check=True
                )
                r = Rewriter(nop=True)
                with open(asm) as f:
                    text = r.rewrite(f.read())
                with open(asm, "w") as f:
                    f.write(text)
                self.assertGreater(r.loads, 0)
                self.assertGreaterEqual(r.ptwrites, r.loads)
                subprocess.run(["gcc", asm, "-o", changed], check=True)
                runs = [
                    subprocess.run([p, "20"], check=True, capture_output=True).stdout
                    for p in (plain, changed)
                ]
                self.assertEqual(runs[0], runs[1])


if __name__ == "__main__":
    unittest.main()
