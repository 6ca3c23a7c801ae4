"""Programs of the NAS parallel benchmarks, from sources that MGZ_NPB names (NPB 3.0 in C).

The paper of Zhong, Shen and Ding predicts SP, and Applu of SPEC CPU2000, which is NAS's LU. One build has room for the
largest grid, and reads the size of its grid from a file.
"""

import os

# Grid points of a side for which there is room.
LARGEST = 32
# Time steps: the paper reduces them where that does not affect the pattern.
STEPS = 3
PARAMETERS = {
    "sp": f"#define PROBLEM_SIZE {LARGEST}\n#define NITER_DEFAULT {STEPS}\n#define DT_DEFAULT 0.0015\n",
    "lu": f"#define ISIZ1 {LARGEST}\n#define ISIZ2 {LARGEST}\n#define ISIZ3 {LARGEST}\n#define ITMAX_DEFAULT {STEPS}\n#define INORM_DEFAULT {STEPS}\n#define DT_DEFAULT 0.001\n",
}
COMMON = (
    '#define CONVERTDOUBLE FALSE\n#define COMPILETIME ""\n#define NPBVERSION "3.0"\n'
    + "".join(f'#define CS{n} ""\n' for n in range(1, 8))
)
INPUTS = {
    "sp": ("inputsp.data", "{steps}\n0.0015\n{n} {n} {n}\n"),
    "lu": (
        "inputlu.data",
        "c\nc\n{steps} {steps}\nc\nc\n{steps}\nc\nc\n0.001\nc\nc\n1.2\nc\nc\n1e-8 1e-8 1e-8 1e-8 1e-8\nc\nc\n{n} {n} {n}\n",
    ),
}


class Nas:
    """Traces of a NAS program by the side of its grid, each made once."""

    def __init__(self, lab, folder, name):
        self.lab, self.name = lab, name
        place = os.path.join(lab.work, f"nas-{name}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, "npbparams.h"), "w", encoding="utf-8") as file:
            file.write(PARAMETERS[name] + COMMON)
        program = os.path.join(place, name)
        sources = [os.path.join(folder, name.upper(), f"{name}.c")]
        sources += [
            os.path.join(folder, "common", f)
            for f in ("c_print_results.c", "c_timers.c", "wtime.c")
        ]
        flags = ["-O2", "-g", "-w", "-fcommon", f"-I{place}", f"-I{os.path.join(folder, 'common')}"]
        lab.run(["gcc", *flags, "-o", program, *sources, "-lm"])
        self.program, self.place = lab.instrument(program), place

    def trace(self, size):
        name = f"nas-{self.name}-{size}"
        path = os.path.join(self.lab.work, name + ".trace")
        if not os.path.exists(path):
            file, text = INPUTS[self.name]
            with open(os.path.join(self.place, file), "w", encoding="utf-8") as out:
                out.write(text.format(steps=STEPS, n=size))
            # The program reads its size from the folder where it runs.
            self.lab.record(name, ["env", "-C", self.place, self.program])
        return path
