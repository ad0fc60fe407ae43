//===- CoreGroupsTest.cpp - Cores that run an engine each -----------------===//

#include "engine/CoreGroups.h"
#include "TempDir.h"
#include "engine/ThreadPool.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <linux/mempolicy.h>
#include <numeric>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace qwen;

namespace {
/// A machine with files of /sys of a test.
class CoreGroupsTest : public testing::Test {
protected:
  void write(const std::string &path, const std::string &text) {
    std::filesystem::create_directories((dir.path() / path).parent_path());
    dir.write(path, text + "\n");
  }
  void cpu(int number, const std::string &file, const std::string &text) {
    write("sys/devices/system/cpu/cpu" + std::to_string(number) + "/" + file,
          text);
  }
  /// Nodes of these lists of CPUs.
  void nodes(const std::vector<std::string> &lists) {
    write("sys/devices/system/node/online",
          "0-" + std::to_string(lists.size() - 1));
    for (size_t i = 0; i < lists.size(); ++i)
      write("sys/devices/system/node/node" + std::to_string(i) + "/cpulist",
            lists[i]);
  }
  std::vector<CorePlace> places(int cpus, int most = 1024) {
    std::vector<int> all(static_cast<size_t>(cpus));
    std::iota(all.begin(), all.end(), 0);
    return corePlaces(all, most, dir.string());
  }
  /// "node: cpus" of each group.
  static std::vector<std::string> texts(std::span<const CorePlace> cores,
                                        int count) {
    std::vector<std::string> result;
    for (const CoreGroup &group : coreGroups(cores, count))
      result.push_back(std::to_string(group.node) + ": " +
                       cpuListText(group.cpus));
    return result;
  }
  static std::string errorOf(std::span<const CorePlace> cores, int count) {
    try {
      coreGroups(cores, count);
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }

  const test::TempDir dir;
};
using Texts = std::vector<std::string>;
} // namespace

// A server of Arm: one socket, clusters of two, no cache that groups share.
TEST_F(CoreGroupsTest, TwelveOfEightOf96ArmCores) {
  nodes({"0-95"});
  for (int i = 0; i < 96; ++i)
    cpu(i, "topology/cluster_cpus_list",
        std::to_string(i / 2 * 2) + "-" + std::to_string(i / 2 * 2 + 1));
  const std::vector<CorePlace> cores = places(96);
  EXPECT_EQ(nodesOf(cores), 1);
  const Texts groups = texts(cores, 12);
  ASSERT_EQ(groups.size(), 12u);
  EXPECT_EQ(groups[0], "0: 0-7");
  EXPECT_EQ(groups[11], "0: 88-95");
  EXPECT_EQ(texts(cores, 7)[0], "0: 0-12");
  EXPECT_EQ(texts(places(96, 8), 2), (Texts{"0: 0-3", "0: 4-7"}));
}

// Two sockets of Zen: two hardware threads a core, caches of four cores.
TEST_F(CoreGroupsTest, NoneCrossesASocket) {
  nodes({"0-7,16-23", "8-15,24-31"});
  for (int i = 0; i < 32; ++i) {
    const int core = i % 16, cache = core / 4 * 4;
    cpu(i, "topology/core_cpus_list",
        std::to_string(core) + "," + std::to_string(core + 16));
    cpu(i, "topology/physical_package_id", std::to_string(core / 8));
    cpu(i, "cache/index3/shared_cpu_list",
        cpuListText({cache, cache + 1, cache + 2, cache + 3}));
  }
  const std::vector<CorePlace> cores = places(32);
  ASSERT_EQ(cores.size(), 16u);
  EXPECT_EQ(nodesOf(cores), 2);
  EXPECT_EQ(texts(cores, 2), (Texts{"0: 0-7", "1: 8-15"}));
  EXPECT_EQ(texts(cores, 4),
            (Texts{"0: 0-3", "0: 4-7", "1: 8-11", "1: 12-15"}));
  EXPECT_EQ(texts(cores, 3), (Texts{"0: 0-3", "0: 4-7", "1: 8-15"}));
  EXPECT_EQ(errorOf(cores, 1),
            "there are 1 groups of cores when the cores lie in 2 NUMA nodes, "
            "and a group has cores of one; use 2 groups or more, or -t with "
            "fewer threads");
  EXPECT_EQ(errorOf(cores, 17), "there are 17 groups of cores when 16 cores "
                                "can run, and a group needs one");
  EXPECT_EQ(nodesOf(places(32, 8)), 1);
}

// The cores of a cache need not have numbers that follow one another.
TEST_F(CoreGroupsTest, NeighboursShareACache) {
  for (int i = 0; i < 8; ++i)
    cpu(i, "cache/index3/shared_cpu_list", i % 2 ? "1,3,5,7" : "0,2,4,6");
  EXPECT_EQ(texts(places(8), 2), (Texts{"0: 0,2,4,6", "0: 1,3,5,7"}));
}

TEST_F(CoreGroupsTest, AMachineThatTellsNothingIsOneNode) {
  EXPECT_EQ(texts(places(3), 2), (Texts{"0: 0", "0: 1-2"}));
  EXPECT_EQ(texts({}, 0), Texts{});
  write("proc/self/cgroup", "0::/a");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  EXPECT_EQ(places(8).size(), 2u);
}

//===----------------------------------------------------------------------===//
// Threads and memory of a group
//===----------------------------------------------------------------------===//

TEST(CoreGroupThreads, StayOnTheirCores) {
  // The mask of a thread whose pool has bound it stays.
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    CoreGroup group;
    for (int i = 0; i < CPU_SETSIZE && group.cpus.size() < 2; ++i)
      if (CPU_ISSET(i, &allowed))
        group.cpus.push_back(i);
    ThreadPool pool(group);
    ASSERT_EQ(pool.size(), std::ssize(group.cpus));
    EXPECT_EQ(pool.node(), 0);
    EXPECT_EQ(ThreadPool(1).node(), std::nullopt);
    std::atomic<int> strays = 0;
    pool.forEach(64, [&](size_t) {
      cpu_set_t mask;
      if (sched_getaffinity(0, sizeof(mask), &mask) != 0 ||
          CPU_COUNT(&mask) != 1 || std::ranges::none_of(group.cpus, [&](int i) {
            return CPU_ISSET(i, &mask);
          }))
        ++strays;
    });
    EXPECT_EQ(strays, 0);
  }).join();
}

TEST(CoreGroupMemory, LiesInItsNode) {
  const Mapping memory = Mapping::memory(1 << 20, "a test");
  memory.preferNode(0);
  int mode = -1;
  unsigned long nodes[16] = {};
  if (syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof(nodes), memory.data(),
              MPOL_F_ADDR) != 0)
    GTEST_SKIP() << "the system has no policies of memory";
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(nodes[0], 1u);
}
