//===- TargetTest.cpp - Names and features of targets ---------------------===//

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/ABI/HostTarget.h"
#include "qwen/CodeGen/Backend/HostCpu.h"

#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

TEST(Target, NamesCpusAndFeatures) {
  const CpuFeatureSet avx512 = {CpuFeature::AVX512F, CpuFeature::AVX512CD,
                                CpuFeature::AVX512BW, CpuFeature::AVX512DQ,
                                CpuFeature::AVX512VL};
  const CpuFeatureSet vnni = {CpuFeature::AVX512VNNI};
  const CpuFeatureSet avxvnni = {CpuFeature::AVXVNNI};
  const CpuFeatureSet amx = {CpuFeature::AMXTile, CpuFeature::AMXInt8};
  const CpuFeatureSet x86 = leastFeatures(Arch::X86_64);
  const CpuFeatureSet arm = leastFeatures(Arch::AArch64);
  const CpuFeatureSet dot = {CpuFeature::DotProd};
  const CpuFeatureSet i8mm = {CpuFeature::I8MM};
  const CpuFeatureSet sve = {CpuFeature::SVE};
  const struct {
    const char *spec;
    CpuFeatureSet features;
    const char *tuneCpu;
  } cases[] = {
      {"x86-64-v3", x86, "generic"},
      {"haswell", x86, "haswell"},
      {"x86-64-v4", x86 | avx512, "generic"},
      {"x86-64-v4+avx512vnni", x86 | avx512 | vnni, "generic"},
      {"x86-64-v3+avx512vnni", x86 | vnni | CpuFeatureSet{CpuFeature::AVX512F},
       "generic"},
      {"znver4", x86 | avx512 | vnni, "znver4"},
      {"znver4+noavx512vnni", x86 | avx512, "znver4"},
      {"alderlake", x86 | avxvnni, "alderlake"},
      {"sapphirerapids", x86 | avx512 | vnni | avxvnni | amx, "sapphirerapids"},
      {"sapphirerapids+noamx-tile", x86 | avx512 | vnni | avxvnni,
       "sapphirerapids"},
      {"armv8-a", arm, "generic"},
      {"armv8.2-a", arm, "generic"},
      {"armv8.2-a+dotprod", arm | dot, "generic"},
      {"armv8.4-a", arm | dot, "generic"},
      {"cortex-a72", arm, "cortex-a72"},
      {"neoverse-n1", arm | dot, "neoverse-n1"},
      {"neoverse-n1+nodotprod", arm, "neoverse-n1"},
      {"armv8.2-a+sve", arm | sve, "generic"},
      {"armv8.6-a", arm | dot | i8mm, "generic"},
      {"armv9-a", arm | dot | sve, "generic"},
      {"a64fx", arm | sve, "a64fx"},
      {"cortex-x2+nosve", arm | dot | i8mm, "cortex-x2"},
      {"neoverse-v1", arm | dot | i8mm | sve, "neoverse-v1"},
      {"neoverse-v2", arm | dot | i8mm | sve, "neoverse-v2"},
      {"neoverse-n2", arm | dot | i8mm | sve, "neoverse-n2"},
      {"yitian710", arm | dot | i8mm | sve, "neoverse-n2"},
  };
  for (const auto &test : cases) {
    const Target target = resolveTarget(test.spec);
    EXPECT_EQ(toString(target.features), toString(test.features)) << test.spec;
    EXPECT_EQ(target.tuneCpu, test.tuneCpu) << test.spec;
    EXPECT_EQ(target.name, test.spec);
    const bool isX86 = test.features.contains(CpuFeature::AVX2);
    EXPECT_EQ(target.arch, isX86 ? Arch::X86_64 : Arch::AArch64) << test.spec;
    EXPECT_EQ(target.triple,
              isX86 ? "x86_64-unknown-linux-gnu" : "aarch64-unknown-linux-gnu");
  }
}

TEST(Target, NativeHasTheFeaturesOfThisMachine) {
  const Target target = resolveTarget("native");
  EXPECT_EQ(target.arch, hostArch());
  EXPECT_EQ(target.features, hostFeatures());
  EXPECT_NE(target.name, "native");
  EXPECT_NE(target.name, "generic");
}

TEST(Target, FeaturesNameThisMachine) {
  const Target target = resolveTarget(hostTarget());
  EXPECT_EQ(target.arch, hostArch());
  EXPECT_EQ(target.features, hostFeatures());
}

TEST(Target, ArmMachineIsItsLeastCore) {
  struct Core {
    const char *midr;
    /// "" is that of a machine of equal cores.
    const char *capacity;
  };
  const struct {
    std::vector<Core> cores;
    const char *name;
  } machines[] = {
      {{{"0x00000000414fd0c1", ""}, {"0x00000000414fd0c1", ""}}, "neoverse-n1"},
      {{{"0x00000000411fd401", ""}}, "neoverse-v1"},
      // Raspberry Pi 4 and 5.
      {{{"0x00000000410fd083", "1024"}}, "cortex-a72"},
      {{{"0x00000000414fd0b1", ""}}, "cortex-a76"},
      // RK3588 and RK3399.
      {{{"0x00000000414fd0b0", "1024"}, {"0x00000000412fd050", "530"}},
       "cortex-a55"},
      {{{"0x00000000410fd034", "485"}, {"0x00000000410fd082", "1024"}},
       "cortex-a53"},
      // The fewest features come before the least speed: A53 lacks dot
      // products.
      {{{"0x00000000412fd050", "200"}, {"0x00000000410fd034", "500"}},
       "cortex-a53"},
      {{{"0x00000000411fd401", "1024"}, {"0x00000000000f0510", "512"}},
       "generic"},
      {{{"not a number", ""}}, "generic"},
      {{}, "generic"},
  };
  for (const auto &machine : machines) {
    const TempDir folder;
    folder.write("possible", "0-7\n");
    for (size_t i = 0; i < machine.cores.size(); ++i) {
      const std::string core = "cpu" + std::to_string(i);
      create_directories(folder.path() / core / "regs/identification");
      folder.write(core + "/regs/identification/midr_el1",
                   machine.cores[i].midr + std::string("\n"));
      if (*machine.cores[i].capacity)
        folder.write(core + "/cpu_capacity",
                     machine.cores[i].capacity + std::string("\n"));
    }
    EXPECT_EQ(leastArmCore(folder.string()), machine.name);
  }
}

TEST(Target, RefusesByName) {
  const std::string ways =
      " (a CPU of `clang --print-supported-cpus`, features such as "
      "armv8.2-a+dotprod or x86-64-v4+avx512vnni, or native)";
  const struct {
    const char *spec;
    std::string message;
  } cases[] = {
      {"neoverse-m1", "unknown target 'neoverse-m1': did you mean "
                      "'neoverse-e1'?" +
                          ways},
      {"", "unknown target ''" + ways},
      {"generic", "unknown target 'generic'" + ways},
      {"armv8", "unknown target 'armv8'" + ways},
      {"qwertyuiop", "unknown target 'qwertyuiop'" + ways},
      {"armv8-a+dotprot",
       "unknown feature 'dotprot' in target 'armv8-a+dotprot': features are "
       "spelled as in clang's -march"},
      {"x86-64-v3+", "unknown feature '' in target 'x86-64-v3+': features are "
                     "spelled as in clang's -march"},
      {"x86-64-v3+dotprod",
       "unknown feature 'dotprod' in target 'x86-64-v3+dotprod': features are "
       "spelled as in clang's -march"},
      {"x86-64-v2", "target 'x86-64-v2' lacks avx2, fma, f16c: x86-64 code "
                    "needs at least avx2, fma, f16c"},
      {"haswell+nofma", "target 'haswell+nofma' lacks fma: x86-64 code needs "
                        "at least avx2, fma, f16c"},
      {"armv8-a+nosimd", "target 'armv8-a+nosimd' lacks neon: aarch64 code "
                         "needs at least neon"},
  };
  for (const auto &test : cases)
    EXPECT_EQ(messageOf([&] { resolveTarget(test.spec); }), test.message);
}

TEST(Target, ListsAreOfOneArchitectureAndWithoutDoubles) {
  const std::vector<Target> targets =
      resolveTargets("cortex-a72,armv8.2-a+sve,graviton2");
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].name, "cortex-a72");
  EXPECT_EQ(targets[1].name, "armv8.2-a+sve");
  EXPECT_EQ(targets[2].tuneCpu, "neoverse-n1");
  EXPECT_EQ(resolveTargets("haswell").size(), 1u);
  const struct {
    const char *list;
    const char *message;
  } cases[] = {
      {"haswell,", "targets 'haswell,' have an empty name; names are separated "
                   "by one comma"},
      {",", "targets ',' have an empty name; names are separated by one comma"},
      {"zen4,zen4", "targets 'zen4,zen4' have 'zen4' twice"},
      {"haswell,znver4,cortex-a72",
       "target 'haswell' is x86-64 and 'cortex-a72' is aarch64: a file has "
       "code for one architecture; compile a file for each"},
      {"haswell,x86-64-v2", "target 'x86-64-v2' lacks avx2, fma, f16c: x86-64 "
                            "code needs at least avx2, fma, f16c"},
  };
  for (const auto &test : cases)
    EXPECT_EQ(messageOf([&] { resolveTargets(test.list); }), test.message);
}

TEST(Target, EveryNameHasFeaturesAndItsCpu) {
  for (const NamedTarget &named : namedTargets()) {
    const Target target = resolveTarget(named.name);
    EXPECT_EQ(target.name, named.name);
    EXPECT_EQ(target.features, resolveTarget(named.cpu).features);
    EXPECT_EQ(target.tuneCpu, named.cpu);
  }
}

TEST(Target, ListsCpus) {
  const std::vector<std::string> arm = targetCpuNames(Arch::AArch64);
  EXPECT_NE(std::find(arm.begin(), arm.end(), "yitian710"), arm.end());
  for (Arch arch : {Arch::X86_64, Arch::AArch64})
    for (const std::string &name : targetCpuNames(arch))
      EXPECT_EQ(messageOf([&] { resolveTarget(name); }).find("unknown"),
                std::string::npos)
          << name;
}
