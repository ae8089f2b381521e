"""Compile the engine where a C compiler works, and install the same sources as plain Python where none does.

``KSEG_BUILD=compiled`` makes a missing or failing compiler an error, ``KSEG_BUILD=python`` skips compilation,
``KSEG_BUILD=any`` makes a wheel of plain Python for all platforms (``py3-none-any``).
``KSEG_ABI3=1`` compiles against Python's stable ABI, so that one wheel serves Python 3.11 and later.
Everything else about the package is in pyproject.toml.
"""

import os
import sys
import sysconfig
import tempfile
from hashlib import sha256
from multiprocessing import get_start_method
from pathlib import Path
from textwrap import shorten

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Build front ends don't put this folder on the path.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kseg.engine import COMPILED_MODULES, HOW_TO_COMPILE, SHARED_MODULE

WANTED = os.environ.get("KSEG_BUILD")
# Free-threaded builds of Python have no stable ABI.
ABI3 = bool(os.environ.get("KSEG_ABI3")) and not sysconfig.get_config_var("Py_GIL_DISABLED")
PROBE = "#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n"


def delete_outdated(sources, folder):
    """Delete the C files below ``folder`` that were made from other contents of ``sources`` or of the .pxd files they use.

    Cython compares file times, which do not show it in a copy of a build folder.
    """
    from Cython.Build.Dependencies import create_dependency_tree

    tree = create_dependency_tree(quiet=True)
    for source in sources:
        contents = sha256()
        for path in sorted(tree.all_dependencies(source)):
            contents.update(sha256(Path(path).read_bytes()).digest())
        translated = Path(folder, source).with_suffix(".c")
        known = translated.with_suffix(".sha256")
        if not known.exists() or known.read_text(encoding="ascii") != contents.hexdigest():
            translated.unlink(missing_ok=True)
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(contents.hexdigest(), encoding="ascii")


def translate(modules, folder, force=False):
    """Translate the modules to C with Cython, below ``folder``; returns the C file of each module by its name.

    With ``force`` also those whose C file is up to date.
    """
    import Cython
    from Cython.Compiler import Options

    # Memoryviews are passed by value, and the struct holds this many dimensions of their shape: 64 bytes to copy instead
    # of 208. With 1, the C compiler rejects what Cython writes. Modules of Cython that are imported later take it over.
    Options.buffer_max_dims = 2
    from Cython.Build import cythonize
    from Cython.Build.SharedModule import generate_shared_module
    from Cython.Compiler.CmdLine import parse_command_line

    # C files of another Cython, or for other memoryviews, are not up to date.
    folder = f"{folder}/{Cython.__version__}-{Options.buffer_max_dims}"
    # Cython's memoryview type, once instead of in each module: a third of the compile time, and of the size.
    shared = Path(folder, f"{SHARED_MODULE.replace('.', '/')}.c")
    if not shared.exists():
        shared.parent.mkdir(parents=True, exist_ok=True)
        options, _ = parse_command_line([f"--generate-shared={shared}"])
        generate_shared_module(options)
    sources = {name: f"{name.replace('.', '/')}.py" for name in modules}
    delete_outdated(sources.values(), folder)
    translated = cythonize(
        [Extension(name, [source]) for name, source in sources.items()],
        build_dir=folder,
        force=force or None,
        # A forked process has the option above; a new interpreter would not.
        nthreads=os.cpu_count() if get_start_method() == "fork" else 0,
        shared_utility_qualified_name=SHARED_MODULE,
        compiler_directives={
            "language_level": "3str",
            "boundscheck": True,  # no byte is trusted
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "annotation_typing": False,  # the .pxd files hold the types
        },
    )
    return {SHARED_MODULE: str(shared), **{extension.name: extension.sources[0] for extension in translated}}


class BuildEngine(build_ext):
    """``build_ext`` that compiles all modules or none, and doesn't fail where none can be compiled."""

    def run(self):
        super().run()
        if self.editable_mode:
            # Spark looks for this module with pkgutil.iter_modules, which does not see what an editable install maps.
            self.copy_file("pyspark_kseg.py", self.get_finalized_command("install").install_lib)

    def build_extensions(self):
        names = [extension.name for extension in self.extensions]
        try:
            if WANTED == "python":
                raise RuntimeError("KSEG_BUILD=python")
            self._probe()  # first: without a compiler, no time goes into Cython
            sources = translate(COMPILED_MODULES, "build/cython", self.force)
            # -g0: debug information is a third of the time. -O2 saves a quarter, but small batches take 20 % longer. -w: the
            # sources are made by Cython, and their warnings help nobody.
            flags = ["/O2"] if self.compiler.compiler_type == "msvc" else ["-O3", "-g0", "-fwrapv", "-w"]
            # A Python that was built in a folder adds this folder to the places where a module looks for its libraries.
            if linker := getattr(self.compiler, "linker_so", None):
                self.compiler.linker_so = [flag for flag in linker if not flag.startswith("-Wl,-rpath")]
            for extension in self.extensions:
                extension.sources = [sources[extension.name]]
                extension.extra_compile_args = flags
            super().build_extensions()
        except Exception as error:  # from FileNotFoundError to LinkError: each compiler class raises its own
            # Called by hand, without pip, which installs Cython.
            without_cython = isinstance(error, ModuleNotFoundError) and not self.editable_mode
            if WANTED == "compiled" or without_cython:
                raise
            self._install_plain(names, shorten(str(error) or type(error).__name__, 160))

    def _probe(self):
        """Compile and link a file that includes Python.h; raises whatever the compiler class raises."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE, encoding="utf-8")
            objects = self.compiler.compile([str(source)], output_dir=folder, include_dirs=self.include_dirs)
            self.compiler.link_shared_object(objects, str(Path(folder, "probe.so")), library_dirs=self.library_dirs)

    def _install_plain(self, names, reason):
        self.extensions = []
        build_py = self.get_finalized_command("build_py")
        for name in names:
            built = Path(self.build_lib, self.get_ext_filename(name))
            built.unlink(missing_ok=True)
            if self.editable_mode or self.inplace:
                # A module compiled by an earlier install would be loaded instead of today's source.
                Path(build_py.get_package_dir(name.rpartition(".")[0]), built.name).unlink(missing_ok=True)
        print(f"kseg: installing plain Python, not the compiled engine ({reason}). {HOW_TO_COMPILE}", file=sys.stderr)


setup(
    cmdclass={"build_ext": BuildEngine},
    options={
        "build_ext": {"parallel": os.cpu_count()},
        "bdist_wheel": {"py_limited_api": "cp311"} if ABI3 else {},
    },
    # A distribution that names extensions is for one platform, also if BuildEngine compiles none.
    ext_modules=[
        Extension(
            name,
            [],
            py_limited_api=ABI3,
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if ABI3 else [],
        )
        for name in (() if WANTED == "any" else (SHARED_MODULE, *COMPILED_MODULES))
    ],
)
