"""The compiled modules; everything else about the package is in pyproject.toml.

``optional``: where there is no compiler the install still works, and the same sources run as plain Python.
"""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

# The build runs this file from elsewhere.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kseg.engine import COMPILED_MODULES

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(name, [f"{name.replace('.', '/')}.py"], optional=True, extra_compile_args=["-O3", "-fwrapv"])
            for name in COMPILED_MODULES
        ],
        build_dir="build/cython",
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
