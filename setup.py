"""The compiled modules; everything else about the package is in pyproject.toml.

``optional``: where there is no compiler the install still works, and the same sources run as plain Python.
"""

import os
import sys

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup

# The build runs this file from elsewhere.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kseg.engine import COMPILED_MODULES

# The struct by which a buffer is handed from function to function holds this many dimensions of its shape: 64 bytes
# to copy a call, not 208. (1 makes the compiler refuse buffers of one dimension.)
Options.buffer_max_dims = 2

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(name, [f"{name.replace('.', '/')}.py"], optional=True, extra_compile_args=["-O3", "-fwrapv"])
            for name in COMPILED_MODULES
        ],
        # Modules hand each other memoryviews by value: C files for another size of these must not be used again.
        build_dir=f"build/cython/{Options.buffer_max_dims}-dimensional",
        compiler_directives={
            "language_level": "3str",
            "boundscheck": True,  # no byte is trusted, not even by us
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "annotation_typing": False,  # the .pxd says the types
        },
    ),
)
