//===- DoctorTest.cpp - What changes the speed of a machine ---------------===//

#include "Doctor.h"
#include "Groups.h"
#include "MemorySpeed.h"

#include "TempDir.h"
#include "engine/CpuCount.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

using namespace qwen;
using namespace qwen::run;

namespace {
/// A machine with files of /sys and /proc of a test.
class DoctorTest : public testing::Test {
protected:
  DoctorTest()
      : machine{dir.string(),
                leastFeatures(hostArch()),
                {0, 1, 2, 3},
                RLIM_INFINITY,
                [](int32_t threads) { return 10e9 * threads; },
                [](const std::vector<int> & /*cpus*/, int node) {
                  return node == 0 ? 10e9 : 6e9;
                }} {
    write("sys/devices/system/cpu/online", "0-3");
    write("sys/kernel/mm/transparent_hugepage/enabled",
          "always [madvise] never");
    write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"
                          "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB");
    write("proc/loadavg", "0.10 0.2 0.3 1/100 200");
  }

  void write(const std::string &path, const std::string &text) {
    std::filesystem::create_directories((dir.path() / path).parent_path());
    dir.write(path, text + "\n");
  }
  void writeCpus(const std::string &file, const std::string &text) {
    for (int cpu : machine.cpus)
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file,
            text);
  }
  /// "FOUND -> ADVICE" of a check.
  std::string look(const std::string &check) {
    for (const Finding &finding : examine(machine))
      if (finding.check == check)
        return finding.found +
               (finding.advice.empty() ? "" : " -> " + finding.advice);
    return "no such check";
  }

  const test::TempDir dir;
  Machine machine;
};
} // namespace

TEST_F(DoctorTest, AGoodMachineNeedsNothing) {
  for (const Finding &finding : examine(machine))
    EXPECT_EQ(finding.advice, "") << finding.check << ": " << finding.found;
  EXPECT_EQ(look("affinity"), "all 4 CPUs of the machine");
  EXPECT_EQ(look("bandwidth"), "40.0 GB/s with 4 threads: weights of 1 GB "
                               "decode at most 40 tokens/s");
  EXPECT_EQ(look("huge pages"), "madvise");
  EXPECT_EQ(look("memory"), "32.0 GiB, of which a program can get 16.0 GiB");
}

TEST_F(DoctorTest, NothingIsKnownOfAnEmptyMachine) {
  std::filesystem::remove_all(dir.path() / "proc");
  std::filesystem::remove_all(dir.path() / "sys");
  for (const Finding &finding : examine(machine))
    EXPECT_EQ(finding.advice, "") << finding.check << ": " << finding.found;
  EXPECT_EQ(look("memory"), "unknown");
  EXPECT_EQ(look("governor"), "not readable here, as in most virtual machines");
}

TEST_F(DoctorTest, ProcessorsThatAreNotUsed) {
  machine.cpus = {0, 1, 2};
  EXPECT_EQ(look("affinity"),
            "3 of 4 CPUs -> start it without taskset, or give the container "
            "or unit more CPUs (cpuset, AllowedCPUs)");
  machine.cpus = {0, 1, 2, 3};
  write("proc/self/cgroup", "0::/a");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  EXPECT_EQ(look("quota").substr(0, 22), "1.5 CPUs -> threads st");
  EXPECT_EQ(look("cores"), "2 cores, which is the default of -t");
  write("sys/fs/cgroup/a/cpu.max", "400000 100000");
  EXPECT_EQ(look("quota"), "4 CPUs");
  writeCpus("cpu_capacity", "1024");
  write("sys/devices/system/cpu/cpu0/cpu_capacity", "160");
  EXPECT_EQ(look("cores"), "3 cores, which is the default of -t; 1 slower "
                           "core left out");
  write("sys/devices/system/cpu/smt/active", "1");
  EXPECT_EQ(look("threads").substr(0, 31), "several hardware threads a core");
  write("proc/loadavg", "3.90 0.2 0.3 1/100 200");
  EXPECT_EQ(look("load"), "3.9 threads want to run -> stop other programs, or "
                          "run -t with fewer threads than cores");
}

TEST_F(DoctorTest, Features) {
  EXPECT_NE(look("kernels").find("without instructions for dot products"),
            std::string::npos);
  machine.features = {};
  EXPECT_EQ(look("kernels").substr(0, 61),
            "none that kernels are written for -> run models on a CPU with");
  machine.features = hostFeatures() - CpuFeatureSet{CpuFeature::AVX512F};
  write("proc/cpuinfo", "model name\t: A CPU\nflags\t\t: fpu avx512f");
  EXPECT_EQ(look("cpu").substr(0, 6), "A CPU,");
  if (hostFeatures().containsAll(leastFeatures(hostArch())))
    EXPECT_NE(look("kernels").find("boot without"), std::string::npos);
}

TEST_F(DoctorTest, Clocks) {
  const std::string advice = " -> sudo cpupower frequency-set -g performance";
  writeCpus("cpufreq/scaling_governor", "powersave");
  writeCpus("cpufreq/scaling_driver", "acpi-cpufreq");
  EXPECT_EQ(look("governor"), "powersave by acpi-cpufreq" + advice);
  // This driver follows the load.
  writeCpus("cpufreq/scaling_driver", "intel_pstate");
  writeCpus("cpufreq/energy_performance_preference", "balance_performance");
  EXPECT_EQ(look("governor"),
            "powersave by intel_pstate, preference balance_performance");
  writeCpus("cpufreq/energy_performance_preference", "power");
  EXPECT_EQ(look("governor"),
            "powersave by intel_pstate, preference power" + advice);
  write("sys/devices/system/cpu/cpufreq/boost", "1");
  EXPECT_EQ(look("turbo"), "on");
  write("sys/devices/system/cpu/cpufreq/boost", "0");
  EXPECT_EQ(look("turbo").substr(0, 13), "off -> echo 1");
  write("sys/devices/system/cpu/intel_pstate/no_turbo", "1");
  EXPECT_EQ(look("turbo").substr(0, 13), "off -> echo 0");
}

TEST_F(DoctorTest, MemoryThatIsShortOrSlow) {
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  EXPECT_EQ(look("huge pages").substr(0, 21), "never -> echo madvise");
  write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"
                        "SwapTotal: 1048576 kB\nSwapFree: 524288 kB");
  EXPECT_EQ(look("swap").substr(0, 61),
            "1.0 GiB, of which 512 MiB are used -> memory is short: run a ");
  write("proc/self/cgroup", "0::/a");
  write("sys/fs/cgroup/a/memory.max", "1073741824");
  EXPECT_EQ(look("memory").substr(0, 91),
            "32.0 GiB, of which a program can get 1.0 GiB; the control group "
            "allows 1.0 GiB -> weights b");
  write("sys/devices/system/node/online", "0-1");
  EXPECT_EQ(look("numa").substr(0, 37),
            "2 nodes -> serve with --replicas auto");
  machine.memorySpeed = [](int32_t) { return 9e9; };
  EXPECT_NE(look("bandwidth").find("-> fill all memory channels"),
            std::string::npos);
  machine.lockableBytes = 8 << 20;
  EXPECT_EQ(look("lockable"),
            "8 MiB; --lock of a larger model needs ulimit -l unlimited");
}

TEST_F(DoctorTest, GroupsOfCores) {
  EXPECT_EQ(look("replicas"), "auto is one engine on 4 cores");
  machine.cpus.clear();
  for (int i = 0; i < 32; ++i)
    machine.cpus.push_back(i);
  EXPECT_EQ(look("replicas"),
            "auto is one engine on 32 cores; for models that fit in the "
            "caches, --replicas 4 replaces numactl -C 0-7 -m 0; numactl -C "
            "8-15 -m 0; numactl -C 16-23 -m 0; numactl -C 24-31 -m 0");
  write("sys/devices/system/node/online", "0-1");
  write("sys/devices/system/node/node0/cpulist", "0-7,16-23");
  write("sys/devices/system/node/node1/cpulist", "8-15,24-31");
  for (int i = 0; i < 32; ++i)
    write("sys/devices/system/cpu/cpu" + std::to_string(i) +
              "/topology/core_cpus_list",
          std::to_string(i % 16) + "," + std::to_string(i % 16 + 16));
  const std::string engines = "auto is 2 engines, in place of numactl -C 0-7 "
                              "-m 0; numactl -C 8-15 -m 1; another node's "
                              "memory has ";
  EXPECT_EQ(look("replicas"), engines + "0.60 of the speed, so each node gets "
                                        "a copy of the weights");
  machine.nodeSpeed = [](const std::vector<int> &, int) { return 8e9; };
  EXPECT_EQ(look("replicas"), engines + "1.00 of the speed, so all nodes read "
                                        "one copy of the weights");
}

TEST(GroupFlags, CopyWeightsWhereOtherNodesAreSlow) {
  const std::vector<CoreGroup> two = {{{0, 1}, 0}, {{2, 3}, 1}};
  const std::vector<CoreGroup> same = {{{0, 1}, 1}, {{2, 3}, 1}};
  double other = 7.1e9;
  const auto speed = [&](const std::vector<int> &cpus, int node) {
    EXPECT_EQ(cpus, (std::vector<int>{0, 1}));
    return node == 0 ? 10e9 : other;
  };
  const auto copies = [&](NumaWeights weights,
                          std::span<const CoreGroup> groups) {
    return copiesWeights(weights, groups, speed);
  };
  EXPECT_FALSE(copies(NumaWeights::Auto, two));
  other = 6.9e9;
  EXPECT_TRUE(copies(NumaWeights::Auto, two));
  EXPECT_FALSE(copies(NumaWeights::Share, two));
  EXPECT_TRUE(copies(NumaWeights::Copy, two));
  EXPECT_FALSE(copies(NumaWeights::Auto, same));
  EXPECT_TRUE(copies(NumaWeights::Copy, same));
  EXPECT_FALSE(copies(NumaWeights::Copy, {}));
  EXPECT_GT(nodeSpeed({affinityCpus().front()}, 0), 0);
}
