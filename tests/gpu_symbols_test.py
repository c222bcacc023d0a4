"""The emulated card's kernels and CUDA's are in one program: no function of the one may be taken for the other's.

Usage: gpu_symbols_test.py LIBRARY OTHER_LIBRARY (both static). Standard library only.
"""
import re
import subprocess
import sys
import unittest

LIBRARIES = []
# Host code of headers that know neither compiler: the same whoever compiled it.
SHARED = re.compile(r"plimsoll::(\w*Error::~\w*Error\(|PreferenceCall::PreferenceCall\(|LossOperands<float>::LossOperands\(|delta_gpu_(forward|backward)\()"
                    r"|^float\* plimsoll::Binding::output<float, plimsoll::operand::\w+::Out>\("
                    r"|^(float|float const|unsigned (?:char|short))\* plimsoll::(updated|gradient)_slice<[a-z ]+>\("
                    r"|^plimsoll::\w+<[a-z, ]+> plimsoll::\w+_args<[a-z, ]+>\(plimsoll::Binding const&\)$")


def functions(library):
    """Names of the program's own functions that the library defines for others."""
    said = subprocess.run(["nm", "-C", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    found = (re.match(r"[0-9a-f]+ [TW] (.*)", line) for line in said.splitlines())
    return {match[1] for match in found if match and "plimsoll::" in match[1] and not match[1].startswith(("std::", "void std::", "guard "))}


class GpuSymbolsTest(unittest.TestCase):
    def test_both_define_the_same_only_where_it_is_the_same(self):
        emulated, cuda = map(functions, LIBRARIES)
        self.assertGreater(len([name for name in emulated if "on_emulator::bind_gpu_" in name]), 40)
        self.assertGreater(len([name for name in cuda if "on_cuda::bind_gpu_" in name]), 40)
        self.assertEqual([name for name in sorted(emulated & cuda) if not SHARED.search(name)], [])
        self.assertEqual([name for name in cuda if "on_emulator" in name], [])
        self.assertEqual([name for name in emulated if "on_cuda" in name], [])


if __name__ == "__main__":
    LIBRARIES = [sys.argv.pop(1), sys.argv.pop(1)]
    unittest.main()
