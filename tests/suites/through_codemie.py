"""A pytest plugin: every program that a test starts on a terminal is started through codemie.

CODEMIE_UNDER_TEST names the binary; without it nothing changes. A command that cannot be found is left alone, because
ptyprocess itself reports that one.
"""
import os

import ptyprocess
import ptyprocess.ptyprocess as implementation


def through_codemie(binary):
    spawn = implementation.PtyProcess.spawn.__func__

    def wrapped(cls, argv, *args, **kwargs):
        env = kwargs.get("env")
        if isinstance(argv, (list, tuple)) and implementation.which(argv[0]) is not None:
            argv = [binary, "run", "--", *argv]
            # In an environment of a test's own codemie still knows where to write, and that it is to say nothing.
            if env is not None:
                ours = {name: value for name, value in os.environ.items() if name.startswith("CODEMIE_")}
                kwargs["env"] = {**ours, **env}
        return spawn(cls, argv, *args, **kwargs)

    ptyprocess.PtyProcess.spawn = classmethod(wrapped)


if os.environ.get("CODEMIE_UNDER_TEST"):
    through_codemie(os.environ["CODEMIE_UNDER_TEST"])
