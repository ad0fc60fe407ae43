//===- ControlGroups.cpp - Limits that the system sets --------------------===//

#include "qwen/Support/ControlGroups.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string_view>

using namespace qwen;

std::optional<std::string> qwen::firstLine(const std::string &path) {
  std::ifstream stream(path);
  std::string line;
  if (!std::getline(stream, line))
    return std::nullopt;
  return line;
}

/// Calls `visit` for each group of this process that has `controller`, the
/// innermost first, with its folder and whether it is a group of version 2.
static void
forEachGroup(std::string_view controller, const std::string &root,
             const std::function<void(const std::string &, bool)> &visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + std::string(controller) + ",") ==
                        std::string::npos)
      continue;
    std::string mount = root + "/sys/fs/cgroup";
    if (!unified)
      mount.append("/").append(controller);
    std::string path = line.substr(second + 1);
    while (true) {
      visit(mount + path, unified);
      // A process in a namespace may see a path that starts with "/..".
      if (path.empty() || path == "/")
        break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

static double parseQuota(const std::string &quota, const std::string &period) {
  const double most = strtod(quota.c_str(), nullptr);
  const double of = strtod(period.c_str(), nullptr);
  return most > 0 && of > 0 ? most / of : INFINITY;
}

double qwen::controlGroupCpus(const std::string &root) {
  double quota = INFINITY;
  forEachGroup("cpu", root, [&](const std::string &group, bool unified) {
    if (unified) {
      const auto limit = firstLine(group + "/cpu.max");
      const size_t space = limit ? limit->find(' ') : std::string::npos;
      if (space != std::string::npos)
        quota = std::min(quota, parseQuota(limit->substr(0, space),
                                           limit->substr(space + 1)));
      return;
    }
    const auto limit = firstLine(group + "/cpu.cfs_quota_us");
    const auto period = firstLine(group + "/cpu.cfs_period_us");
    if (limit && period)
      quota = std::min(quota, parseQuota(*limit, *period));
  });
  return quota;
}

std::optional<uint64_t> qwen::controlGroupMemory(const std::string &root) {
  // Version 1 writes "no limit" as the greatest multiple of a memory page.
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;
  uint64_t least = kNoLimit;
  forEachGroup("memory", root, [&](const std::string &group, bool unified) {
    const auto limit =
        firstLine(group + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    char *end = nullptr;
    // "max" is not a number and means no limit.
    const uint64_t bytes = limit ? strtoull(limit->c_str(), &end, 10) : 0;
    if (limit && end != limit->c_str())
      least = std::min(least, bytes);
  });
  if (least == kNoLimit)
    return std::nullopt;
  return least;
}

bool qwen::exceedsFreeMemory(uint64_t bytes) {
  const std::optional<uint64_t> free = freeMemory();
  return free && bytes > *free;
}

/// Bytes of a line of /proc/meminfo, such as "MemTotal:".
static std::optional<uint64_t> memoryLine(const std::string &root,
                                          std::string_view name) {
  std::ifstream stream(root + "/proc/meminfo");
  std::string key;
  uint64_t kilobytes;
  while (stream >> key >> kilobytes) {
    if (key == name)
      return kilobytes * 1024;
    std::getline(stream, key);
  }
  return std::nullopt;
}

std::optional<uint64_t> qwen::machineMemory(const std::string &root) {
  return memoryLine(root, "MemTotal:");
}

std::optional<uint64_t> qwen::freeMemory(const std::string &root) {
  std::optional<uint64_t> least = controlGroupMemory(root);
  if (const auto available = memoryLine(root, "MemAvailable:"))
    least = std::min(least.value_or(UINT64_MAX), *available);
  return least;
}
