//===- CoreGroups.cpp - Cores that run an engine each ---------------------===//

#include "engine/CoreGroups.h"

#include "engine/CpuCount.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

using namespace qwen;

/// The number in a file of /sys; 0 if there is none.
static int numberIn(const std::string &path) {
  const auto text = firstLine(path);
  return text
             ? std::max(0, static_cast<int>(strtol(text->c_str(), nullptr, 10)))
             : 0;
}

/// The first CPU of a list in a file of /sys; 0 if there is none.
static int firstIn(const std::string &path) {
  const auto text = firstLine(path);
  const std::set<int> cpus = text ? parseCpuList(*text) : std::set<int>{};
  return cpus.empty() ? 0 : *cpus.begin();
}

/// The node of each CPU that a node has.
static std::map<int, int> nodesOfCpus(const std::string &root) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::map<int, int> nodes;
  const auto online = firstLine(folder + "online");
  for (int node : online ? parseCpuList(*online) : std::set<int>{})
    if (const auto cpus =
            firstLine(folder + "node" + std::to_string(node) + "/cpulist"))
      for (int cpu : parseCpuList(*cpus))
        nodes[cpu] = node;
  return nodes;
}

std::vector<CorePlace> qwen::corePlaces(const std::vector<int> &cpus, int most,
                                        const std::string &root) {
  const std::map<int, int> nodes = nodesOfCpus(root);
  std::vector<CorePlace> places;
  for (int cpu : usableCpus(cpus, root)) {
    const std::string folder =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    const auto node = nodes.find(cpu);
    places.push_back(
        {.cpu = cpu,
         .node = node == nodes.end() ? 0 : node->second,
         .package = numberIn(folder + "topology/physical_package_id"),
         .cache = firstIn(folder + "cache/index3/shared_cpu_list"),
         .cluster = firstIn(folder + "topology/cluster_cpus_list")});
  }
  std::ranges::sort(places, {}, [](const CorePlace &place) {
    return std::tuple(place.node, place.package, place.cache, place.cluster,
                      place.cpu);
  });
  const auto count =
      static_cast<size_t>(std::max(1, std::min(most, usableCores(cpus, root))));
  places.resize(std::min(places.size(), count));
  return places;
}

int qwen::nodesOf(std::span<const CorePlace> cores) {
  std::set<int> nodes;
  for (const CorePlace &core : cores)
    nodes.insert(core.node);
  return static_cast<int>(nodes.size());
}

std::vector<CoreGroup> qwen::coreGroups(std::span<const CorePlace> cores,
                                        int count) {
  struct Node {
    std::span<const CorePlace> cores;
    size_t groups = 1;
  };
  std::vector<Node> nodes;
  for (size_t first = 0, end = 0; first < cores.size(); first = end) {
    while (end < cores.size() && cores[end].node == cores[first].node)
      ++end;
    nodes.push_back({cores.subspan(first, end - first)});
  }
  const auto all = static_cast<size_t>(std::max(count, 0));
  const std::string found =
      "there are " + std::to_string(count) + " groups of cores when ";
  if (all > cores.size())
    throw Error(found + std::to_string(cores.size()) +
                " cores can run, and a group needs one");
  if (all < nodes.size())
    throw Error(found + "the cores lie in " + std::to_string(nodes.size()) +
                " NUMA nodes, and a group has cores of one; use " +
                std::to_string(nodes.size()) +
                " groups or more, or -t with "
                "fewer threads");
  // Each further group goes where groups have the most cores.
  for (size_t given = nodes.size(); given < all; ++given)
    ++std::ranges::max_element(nodes, {}, [](const Node &node) {
        return static_cast<double>(node.cores.size()) /
               static_cast<double>(node.groups);
      })->groups;

  std::vector<CoreGroup> groups;
  for (const Node &node : nodes)
    for (size_t i = 0; i < node.groups; ++i) {
      CoreGroup &group = groups.emplace_back();
      group.node = node.cores.front().node;
      const size_t end = (i + 1) * node.cores.size() / node.groups;
      for (size_t at = i * node.cores.size() / node.groups; at < end; ++at)
        group.cpus.push_back(node.cores[at].cpu);
    }
  return groups;
}

std::string qwen::cpuListText(std::vector<int> cpus) {
  std::ranges::sort(cpus);
  std::string text;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const size_t first = i;
    while (i + 1 < cpus.size() && cpus[i + 1] == cpus[i] + 1)
      ++i;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[first]);
    if (i > first)
      text += "-" + std::to_string(cpus[i]);
  }
  return text;
}
