"""Python reads this file when `mgz run` starts it: extension modules are loaded in their instrumented form.

The program sees nothing of it: the search path and the environment are as they were, modules keep their names and
paths, and a sitecustomize of the user's own comes next. Whatever goes wrong here, the original module is loaded.
"""


def _install():
    # Of what Python has loaded by now, so that no module is loaded for this that the program would find loaded.
    import _frozen_importlib_external as machinery
    import posix
    import sys
    import time
    from _frozen_importlib import ModuleSpec
    from _thread import get_ident

    here = __file__.rpartition("/")[0]
    folder = posix.environ.get(b"MGZ_MODULES", b"")
    request = folder + b"/request"

    def restore():
        # The environment as mgz was started with; `os` may have copied it already.
        kept = posix.environ.get(b"MGZ_PYTHONPATH")
        old = None if kept is None else kept.decode(sys.getfilesystemencoding(), "surrogateescape")
        import os

        for name in ("MGZ_MODULES", "MGZ_PYTHONPATH", "PYTHONPATH"):
            os.environ.pop(name, None)
        if old is not None:
            os.environ["PYTHONPATH"] = old
        for name in (b"MGZ_MODULES", b"MGZ_PYTHONPATH", b"PYTHONPATH"):
            posix.environ.pop(name, None)
        if kept is not None:
            posix.environ[b"PYTHONPATH"] = kept
        while here in sys.path:
            sys.path.remove(here)
        sys.path_importer_cache.pop(here, None)

    count = [0]

    def listening():
        """Whether mgz still answers: only a pipe that somebody reads can be opened so."""
        return posix.open(request, posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)

    def ask(path):
        """The instrumented form of a module's file, or nothing."""
        name = path.encode(sys.getfilesystemencoding(), "surrogateescape")
        count[0] += 1
        reply = folder + ("/%d-%d-%d" % (posix.getpid(), get_ident(), count[0])).encode()
        line = reply + b"\0" + name + b"\n"
        # Longer ones are not written in one piece.
        if len(line) > 4000 or b"\n" in name:
            return None
        to = listening()
        try:
            posix.mkfifo(reply, 0o600)
            try:
                answer = posix.open(reply, posix.O_RDWR | posix.O_NONBLOCK | posix.O_CLOEXEC)
                try:
                    posix.write(to, line)
                    text, turns = b"", 0
                    while not text.endswith(b"\n"):
                        try:
                            text += posix.read(answer, 4096)
                        except BlockingIOError:
                            turns += 1
                            time.sleep(0.001 if turns < 50 else 0.02)
                            if turns % 50 == 0:
                                posix.close(listening())
                finally:
                    posix.close(answer)
            finally:
                posix.unlink(reply)
        finally:
            posix.close(to)
        found = text[:-1]
        return found.decode(sys.getfilesystemencoding(), "surrogateescape") or None

    known = {}
    loader = machinery.ExtensionFileLoader
    create = loader.create_module

    def create_module(self, spec):
        path = spec.origin
        if path not in known:
            try:
                known[path] = ask(path)
            except Exception:
                known[path] = None
        other = known[path]
        if other is None:
            return create(self, spec)
        module = create(self, ModuleSpec(spec.name, spec.loader, origin=other))
        # Modules of the old kind name their file by themselves.
        if getattr(module, "__file__", None) == other:
            module.__file__ = path
        return module

    create_module.__doc__ = create.__doc__
    create_module.__qualname__ = create.__qualname__
    restore()
    if folder:
        loader.create_module = create_module


def _next():
    """The sitecustomize that would have been read, if there is one."""
    import sys
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        # The module `site` takes this as: there is none.
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _install()
except Exception:
    pass
_next()
