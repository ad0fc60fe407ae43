//===- Products.cpp - Speed of whole products -----------------------------===//
//
// A product as a model's code computes it on one thread: the kernel for most
// tokens and those for the rest share the tokens, and calls have the sizes of
// its schedule. Weights come from memory, since each call has others.
//
//===----------------------------------------------------------------------===//

#include "Products.h"
#include "Instances.h"
#include "Kernels.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/CpuFeatures.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

#include <map>
#include <memory>
#include <string>

using namespace qwen;
using namespace qwen::bench;

namespace {
/// The kernels of a file by name, without the targets behind their names.
using Functions = std::map<std::string_view, void *>;

/// A product's plan with the functions of a file.
struct Plan {
  std::vector<DriverTile<LinearQ8Fn>> tiles;
  ProductInstance<LinearQ8Fn> fixed;
};
} // namespace

/// The plan with `gemm`, or null where `functions` lacks a kernel of it.
static std::shared_ptr<Plan> planOf(const KernelInfo &gemm,
                                    const Functions &functions) {
  const KernelInfo *gemv = nullptr;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.op == gemm.op && kernel.format == gemm.format && kernel.m == 1 &&
        gemm.features().containsAll(kernel.features()) &&
        functions.contains(kernel.name))
      gemv = &kernel;
  if (!gemv)
    return nullptr;
  const ProductPlan product = productPlan(*gemv, gemm);
  auto plan = std::make_shared<Plan>();
  for (const auto &[kernel, tokens] : product.tiles) {
    const auto function = functions.find(kernel->name);
    if (function == functions.end())
      return nullptr;
    plan->tiles.push_back(
        {reinterpret_cast<LinearQ8Fn *>(function->second), tokens});
  }
  plan->fixed = {product.cached,     product.least,
                 product.reused,     product.together,
                 plan->tiles.data(), static_cast<int64_t>(plan->tiles.size())};
  return plan;
}

static void multiplyAll(benchmark::State &state, const Plan &plan,
                        KernelFormat format, const ProductShape &shape,
                        int64_t m) {
  const auto [k, n] = shape;
  Blocks blocks(m, k);
  std::vector<float> out = floats(m * n);
  const int64_t panels = n / kPanelOutputs;
  const TokenTiles &tiles = plan.tiles[0].tokens;
  const int64_t bytes = panels * panelBytes(*weightFormat(format), k);
  const auto size = static_cast<int64_t>(weightMemory().size());
  int64_t at = 0;
  repeat(state, bytes, m * n * k, [&] {
    const driver::QuantizedInput input{{blocks.q.data(), blocks.d.data(),
                                        blocks.sums.data(), k,
                                        tiles.layoutInfo(), tiles.inTiles(m)}};
    const driver::Product<LinearQ8Fn> product = {weightMemory().data() + at,
                                                 nullptr,
                                                 nullptr,
                                                 out.data(),
                                                 m,
                                                 n,
                                                 plan.fixed};
    driver::multiply(input, product, {0, panels});
    at = at + 2 * bytes > size ? 0 : at + bytes;
  });
}

void bench::registerProducts(const ElfMapping &image,
                             std::span<const ProductShape> shapes,
                             std::span<const int64_t> tokens) {
  Functions functions;
  for (const auto &[name, address] : image.entries())
    functions[std::string_view(name).substr(0, name.find('.'))] = address;
  for (const KernelInfo &gemm : kernelTable()) {
    if (gemm.op != KernelOp::LinearQ8 || gemm.m == 1 ||
        !hostFeatures().containsAll(gemm.features()) ||
        !functions.contains(gemm.name))
      continue;
    const std::shared_ptr<Plan> plan = planOf(gemm, functions);
    if (!plan)
      continue;
    for (const ProductShape &shape : shapes)
      for (const int64_t m : tokens) {
        const auto [k, n] = shape;
        const std::string name = std::string(gemm.name) + "/" +
                                 std::to_string(k) + "x" + std::to_string(n) +
                                 "/" + std::to_string(m);
        // The library owns what it is given.
        // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
        benchmark::RegisterBenchmark(
            name.c_str(), [plan, &gemm, shape, m](benchmark::State &state) {
              multiplyAll(state, *plan, gemm.format, shape, m);
            });
      }
  }
}
