# SPDX-License-Identifier: (Apache-2.0 OR MIT)
# Spack's own names all come from its package module.
# ruff: noqa: F403, F405
"""Recipe for Spack: a repository's packages/mgz/package.py."""

from spack.package import *


class Mgz(Package):
    """Shows where a program's memory accesses go and why they are slow. Instruments x86-64
    executables without their source and samples their loads at a cost of about one percent."""

    homepage = "https://example.invalid/mgz"
    git = "https://example.invalid/mgz.git"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")

    conflicts("target=aarch64:", msg="mgz is for x86-64")
    conflicts("platform=darwin", msg="mgz is for Linux")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        for folder in ("mgz", "instrument", "collector/cli", "analyzer/cli"):
            cargo("install", "--locked", "--path", folder, "--root", prefix)
        mkdirp(prefix.share.man.man1)
        for name in ("mgz", "mgz-instrument", "mgz-record", "mgz-analyze"):
            manual = "man" if name == "mgz" else "--man"
            page = Executable(prefix.bin.join(name))(manual, output=str)
            with open(join_path(prefix.share.man.man1, name + ".1"), "w") as file:
                file.write(page)
