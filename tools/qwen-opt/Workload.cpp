//===- Workload.cpp - Costs of all ops in prefill or decode ---------------===//

#include "Workload.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace qwen;
using nlohmann::ordered_json;

double Workload::cycles() const {
  double sum = 0;
  for (const OpCost &op : ops)
    sum += op.cycles.value_or(0);
  return sum;
}

double Workload::ceiling(const MachineSpeed &machine) const {
  double seconds = 0;
  for (const OpCost &cost : ops)
    seconds +=
        std::max(cost.memoryBytes / machine.bytes,
                 cost.cycles.value_or(0) / (machine.hertz * machine.cores));
  return 1 / seconds;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

namespace {
/// Ops that differ only in their layer.
struct CostRow {
  std::string name;
  int64_t ops = 0;
  OpCost cost;
};
} // namespace

/// "layers.*.mlp.down_proj": an op's name for all layers.
static std::string withoutLayer(llvm::StringRef name) {
  llvm::StringRef rest = name;
  uint64_t layer = 0;
  if (!rest.consume_front("layers.") || rest.consumeInteger(10, layer))
    return name.str();
  return "layers.*" + rest.str();
}

static std::vector<CostRow> mergeLayers(const Manifest &manifest,
                                        const std::vector<OpCost> &ops) {
  std::vector<CostRow> rows;
  for (const auto &[op, cost] : llvm::zip_equal(manifest.forward().ops, ops)) {
    const std::string name = withoutLayer(op);
    auto row = llvm::find_if(rows, [&](const CostRow &other) {
      return other.name == name && other.cost.kernels == cost.kernels;
    });
    if (row == rows.end())
      row = rows.insert(row, {name, 0, {0, 0, 0, {}, cost.kernels}});
    ++row->ops;
    row->cost.bytes += cost.bytes;
    row->cost.macs += cost.macs;
    if (cost.cycles)
      row->cost.cycles = row->cost.cycles.value_or(0) + *cost.cycles;
  }
  return rows;
}

static void printRow(const CostRow &row, double allCycles) {
  std::string cycles = "-", share = "-";
  if (row.cost.cycles) {
    cycles = llvm::formatv("{0:f0}", *row.cost.cycles);
    share = llvm::formatv("{0:f1}%", *row.cost.cycles / allCycles * 100);
  }
  llvm::outs() << llvm::formatv("  {0,-34} {1,3} {2,13:f0} {3,13:f0} {4,12} "
                                "{5,6}  {6}\n",
                                row.name, row.ops, row.cost.bytes,
                                row.cost.macs, cycles, share,
                                llvm::join(row.cost.kernels, ", "));
}

void Workload::print(const Manifest &manifest) const {
  llvm::outs() << '\n' << title << '\n';
  llvm::outs() << llvm::formatv("  {0,-34} {1,3} {2,13} {3,13} {4,12} {5,6}  "
                                "{6}\n",
                                "op", "ops", "bytes", "MACs", "cycles", "share",
                                "kernels");
  const double sum = cycles();
  CostRow total = {"total", 0, {0, 0, 0, sum, {}}};
  for (const CostRow &row : mergeLayers(manifest, ops)) {
    printRow(row, sum);
    total.ops += row.ops;
    total.cost.bytes += row.cost.bytes;
    total.cost.macs += row.cost.macs;
  }
  printRow(total, sum);
}

ordered_json Workload::toJson(const Manifest &manifest) const {
  const double sum = cycles();
  ordered_json all = ordered_json::object();
  for (const auto &[name, cost] :
       llvm::zip_equal(manifest.forward().ops, ops)) {
    ordered_json &op = all[name] = {
        {"bytes", cost.bytes}, {"macs", cost.macs}, {"kernels", cost.kernels}};
    if (cost.cycles) {
      op["cycles"] = *cost.cycles;
      op["share"] = *cost.cycles / sum;
    }
  }
  return {{"cycles", sum}, {"ops", std::move(all)}};
}
