//===- CpuCountTest.cpp - Cores and memory that the system allows ---------===//

#include "engine/CpuCount.h"

#include "qwen/Support/ControlGroups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace qwen;

namespace {
/// A tree of /sys and /proc.
class SystemTest : public testing::Test {
protected:
  void SetUp() override {
    root = testing::TempDir() + "/cpus-" + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string &path, const std::string &text) {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void cpu(int number, const std::string &file, const std::string &text) {
    write("/sys/devices/system/cpu/cpu" + std::to_string(number) + "/" + file,
          text);
  }

  std::string root;
};
} // namespace

TEST_F(SystemTest, SiblingsAreOneCore) {
  for (int i = 0; i < 8; ++i)
    cpu(i, "topology/core_cpus_list",
        std::to_string(i % 4) + "," + std::to_string(i % 4 + 4));
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 4);
  EXPECT_EQ(usableCores({4, 5}, root), 2);
  EXPECT_EQ(usableCores({1, 5}, root), 1);
  EXPECT_EQ(usableCores({}, root), 1);
}

TEST_F(SystemTest, SlowCoresAreLeftOut) {
  const int capacities[] = {160, 160, 160, 160, 498, 498, 498, 1024};
  for (int i = 0; i < 8; ++i)
    cpu(i, "cpu_capacity", std::to_string(capacities[i]));
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 4);
  EXPECT_EQ(usableCores({0, 1, 2}, root), 3);
  EXPECT_EQ(physicalCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 8);
}

TEST_F(SystemTest, EfficientCoresOfHybridsAreLeftOut) {
  write("/sys/devices/cpu_core/cpus", "0-3");
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5}, root), 4);
  EXPECT_EQ(usableCores({4, 5}, root), 2);
  EXPECT_EQ(physicalCores({0, 1, 2, 3, 4, 5}, root), 6);
}

TEST_F(SystemTest, QuotasOfAllGroupsCount) {
  const std::vector<int> cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(usableCores(cpus, root), 8);
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(usableCores(cpus, root), 8);
  write("/sys/fs/cgroup/a/cpu.max", "250000 100000");
  EXPECT_EQ(usableCores(cpus, root), 3);
  write("/sys/fs/cgroup/cpu.max", "10000 100000");
  EXPECT_EQ(usableCores(cpus, root), 1);
}

TEST(UsableThreads, AreNoMoreThanCores) {
  const int cores = physicalCores(affinityCpus());
  EXPECT_EQ(usableThreads(cores + 1), cores);
  EXPECT_EQ(usableThreads(1), 1);
  EXPECT_EQ(usableThreads(0), 0);
}

TEST_F(SystemTest, QuotasOfVersion1Count) {
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/a");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usableCores({0, 1, 2, 3}, root), 2);
}

TEST_F(SystemTest, TheLeastMemoryOfAllGroupsCounts) {
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "max");
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/sys/fs/cgroup/a/memory.max", "1048576");
  write("/sys/fs/cgroup/memory.max", "2097152");
  EXPECT_EQ(controlGroupMemory(root), 1048576u);
}

TEST_F(SystemTest, MemoryOfVersion1Counts) {
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/a");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "65536");
  write("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1");
  EXPECT_EQ(controlGroupMemory(root), 65536u);
}

TEST_F(SystemTest, FreeMemoryIsTheLesserOfSystemAndGroup) {
  EXPECT_EQ(freeMemory(root), std::nullopt);
  write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 7 kB\n"
                         "MemAvailable: 512 kB\nHugePages_Total: 0\n"
                         "Hugepagesize: 2048 kB");
  EXPECT_EQ(freeMemory(root), 524288u);
  EXPECT_EQ(machineMemory(root), 921600u);
  write("/proc/self/cgroup", "0::/a");
  write("/sys/fs/cgroup/a/memory.max", "65536");
  EXPECT_EQ(freeMemory(root), 65536u);
}
