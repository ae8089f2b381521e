"""The compiled modules; everything else about the package is in pyproject.toml.

``optional``: where there is no compiler the install still works, and the same sources run as plain Python.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

# Plain Python modules with a .pxd of C types beside each.
COMPILED = ("kernel", "checks", "record_checks", "encoder", "survey", "record_lines")

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(f"kseg.{name}", [f"kseg/{name}.py"], optional=True, extra_compile_args=["-O3", "-fwrapv"])
            for name in COMPILED
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
    )
)
