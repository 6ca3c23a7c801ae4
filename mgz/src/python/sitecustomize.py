"""Python reads this file when `mgz run` starts it: extension modules are loaded in their instrumented form.

The program sees nothing of it: the search path and the environment are as they were, modules keep their names and
paths, and a sitecustomize of the user's own comes next. Whatever goes wrong here, the original module is loaded.
The lines in front of this set FOLDER, which holds this file, and OLD, the user's PYTHONPATH or None.
"""


def _restore():
    """Makes the search path and the environment what they are without this file."""
    import os
    import sys

    here = os.fsdecode(FOLDER)
    while here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    # Another interpreter of the same process finds it done.
    if os.environb.get(b"PYTHONPATH", b"").split(b":")[0] == FOLDER:
        if OLD is None:
            del os.environb[b"PYTHONPATH"]
        else:
            os.environb[b"PYTHONPATH"] = OLD


def _install():
    """Takes the place of the function of the import system that opens extension modules."""
    # Only modules that Python has already loaded: the program must not find others loaded because
    # of this.
    import _frozen_importlib_external as machinery
    import posix
    import sys
    import time
    from _thread import get_ident

    if sys.implementation.name != "cpython" or sys.version_info < (3, 8):
        return
    request = FOLDER + b"/request"
    encoding = sys.getfilesystemencoding()
    # The program may put its own functions in the place of these.
    open_file, close, read, write, stat = (
        posix.open,
        posix.close,
        posix.read,
        posix.write,
        posix.stat,
    )
    mkfifo, unlink, getpid, sleep = posix.mkfifo, posix.unlink, posix.getpid, time.sleep
    to_write = posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC
    to_read = posix.O_RDWR | posix.O_NONBLOCK | posix.O_CLOEXEC
    count = [0]

    def ask(path):
        """The instrumented form of a module's file, or nothing."""
        name = path.encode(encoding, "surrogateescape")
        count[0] += 1
        reply = FOLDER + ("/%d-%d-%d" % (getpid(), get_ident(), count[0])).encode()
        line = reply + b"\0" + name + b"\n"
        # Longer ones are not written in one piece.
        if len(line) > 4000 or b"\n" in name or not name.startswith(b"/"):
            return None
        # Fails if nobody is there who answers.
        to = open_file(request, to_write)
        try:
            mkfifo(reply, 0o600)
            try:
                answer = open_file(reply, to_read)
                try:
                    write(to, line)
                    text, turns = b"", 0
                    while not text.endswith(b"\n"):
                        try:
                            text += read(answer, 4096)
                        except BlockingIOError:
                            turns += 1
                            sleep(0.001 if turns < 50 else 0.02)
                            if turns % 50 == 0:
                                close(open_file(request, to_write))
                finally:
                    close(answer)
            finally:
                unlink(reply)
        finally:
            close(to)
        return text[:-1].decode(encoding, "surrogateescape") or None

    # Earlier answers, and files that are open under another name.
    known, opened = {}, {}
    loader = machinery.ExtensionFileLoader
    create = loader.create_module

    def form_of(path):
        try:
            file = stat(path)
            key = (path, file.st_ino, file.st_size, file.st_mtime)
            if key not in known:
                known[key] = ask(path)
            return known[key]
        except Exception:
            return None

    def create_module(self, spec):
        other = form_of(spec.origin)
        if other is None:
            return create(self, spec)
        shown = object.__new__(type(spec))
        shown.__dict__.update(spec.__dict__)
        shown.origin = other
        try:
            module = create(self, shown)
        except ImportError as error:
            # The file at this path could not be opened, and no code of it has run. Any other error
            # is the module's own.
            if error.path != other:
                raise
            module = None
        if module is None:
            return create(self, spec)
        opened[spec.origin] = other
        # Modules of the old kind name their file by themselves.
        if getattr(module, "__file__", None) == other:
            module.__file__ = spec.origin
        if spec.name == "_ctypes" and hasattr(module, "dlopen"):
            _open_once(module, opened)
        return module

    create_module.__doc__ = create.__doc__
    create_module.__qualname__ = create.__qualname__
    # Python leaves its import system out of the tracebacks of failed imports.
    for function in (create_module, form_of, ask):
        function.__code__ = function.__code__.replace(co_filename=create.__code__.co_filename)
    loader.create_module = create_module


def _open_once(ctypes, opened):
    """Who opens a module's `__file__` gets the module that is loaded, not another one with data of its own."""
    real = ctypes.dlopen

    def dlopen(name, *rest):
        return real(opened.get(name, name) if isinstance(name, str) else name, *rest)

    ctypes.dlopen = dlopen


def _next():
    """The sitecustomize that would have been read, if there is one."""
    import sys

    # The import system puts what is here in the end into the place of this module.
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


try:
    _restore()
    _install()
except Exception:
    pass
_next()
