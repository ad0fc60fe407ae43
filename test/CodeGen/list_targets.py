"""Compares --list-targets with a list that was written by hand, without LLVM: list_targets.py TARGETS.json"""
import json
import sys

HAVE = {
    "": "cortex-a53 cortex-a72 raspberry-pi4",
    "dotprod": "cortex-a55 cortex-a76 cortex-a78 cortex-x1 neoverse-n1 graviton2 ampere-altra kunpeng920 apple-m1 rk3588 raspberry-pi5",
    "dotprod i8mm": "ampere-one apple-m2 apple-m3 apple-m4",
    "dotprod i8mm sve": "cortex-x2 cortex-x4 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 yitian710 graviton3 graviton4",
    "avx2": "haswell broadwell skylake zen1 zen2 zen3",
    "avx2 avx512f": "skylake-avx512 cannonlake",
    "avx2 avx512f avx512vnni": "cascadelake cooperlake icelake-client icelake-server tigerlake rocketlake zen4",
    "avx2 avxvnni": "alderlake raptorlake meteorlake arrowlake lunarlake sierraforest",
    "avx2 avxvnni avx512f avx512vnni": "zen5",
    "avx2 avxvnni avx512f avx512vnni amx-int8": "sapphirerapids emeraldrapids graniterapids",
}
ASKED = set(" ".join(HAVE).split())

targets = {target["name"]: target for target in json.load(open(sys.argv[1]))}
named = set()
for features, names in HAVE.items():
    for name in names.split():
        named.add(name)
        found = ASKED & set(targets[name]["features"])
        assert found == set(features.split()), (name, found)
assert named == set(targets), named ^ set(targets)
for target in targets.values():
    assert target["arch"] == ("x86-64" if "avx2" in target["features"] else "aarch64"), target
    for name, kernels in target["rows"].items():
        for kernel in kernels.values():
            assert kernel.startswith(f"linear_{name}_"), (name, kernel)
