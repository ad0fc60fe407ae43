//===- Instances.cpp - Driver functions with what they fix ----------------===//

#include "Instances.h"

#include "qwen/CodeGen/Driver/Driver.h"
#include "qwen/CodeGen/FunctionTypes.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

#include <functional>
#include <map>

using namespace mlir;
using namespace qwen;

/// The type of a function of the driver, by its declaration.
#define QWEN_TYPE(Symbol)                                                      \
  typeOf(static_cast<decltype(&(Symbol))>(nullptr), module.getContext())

Instances::Instances(ModuleOp module)
    : module(module), builder(module.getLoc(), module.getContext()) {}

std::string Instances::declare(StringRef name, FunctionType type) {
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    func::FuncOp::create(builder, name, type).setPrivate();
  }
  return name.str();
}

std::string Instances::barrier() {
  return declare("qwenDriverBarrier", QWEN_TYPE(qwenDriverBarrier));
}
std::string Instances::trace() {
  return declare("qwenDriverTrace", QWEN_TYPE(qwenDriverTrace));
}

std::string Instances::instance(const DriverCall &call) {
  const Attribute key =
      builder.getArrayAttr({builder.getStringAttr(call.function),
                            builder.getDictionaryAttr(call.fixed)});
  std::string &name = names[key];
  if (!name.empty())
    return name;
  name = call.name;
  for (int number = 1; module.lookupSymbol(name); ++number)
    name = call.name + "." + std::to_string(number);

  const Type pointer = LLVM::LLVMPointerType::get(module.getContext());
  const Type i32 = builder.getI32Type();
  builder.setInsertionPointToEnd(module.getBody());
  auto instance = func::FuncOp::create(
      builder, name, builder.getFunctionType({pointer, i32, pointer}, {}));
  instance.setPrivate();
  instance->setAttr("passthrough", builder.getStrArrayAttr({"noinline"}));
  builder.setInsertionPointToStart(instance.addEntryBlock());
  SmallVector<Value> arguments(instance.getArguments());
  arguments.push_back(StructOp::create(builder, pointer, call.fixed));
  func::CallOp::create(builder, call.function, TypeRange(), arguments);
  func::ReturnOp::create(builder);

  declare(call.function,
          builder.getFunctionType({pointer, i32, pointer, pointer}, {}));
  instance.walk([&](StructOp fixed) {
    fixed.getValues().walk([&](KernelAttr kernel) {
      const KernelInfo &info = *kernel.getInfo();
      declare(StringRef(info.name), kernelType(info.op, module.getContext()));
    });
  });
  return name;
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

/// The GEMM, the kernels for fewer tokens that run where it and the GEMV do,
/// from the largest M on, and the GEMV.
static SmallVector<ProductPlan::Tile> tilesOf(const KernelInfo &gemv,
                                              const KernelInfo &gemm) {
  std::map<int64_t, const KernelInfo *, std::greater<>> tiles;
  const CpuFeatureSet features = gemv.features() | gemm.features();
  const int64_t least = tokenTiles(gemm).least;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.op == gemv.op && kernel.format == gemv.format &&
        kernel.m < least && kernel.name != gemm.name &&
        features.containsAll(kernel.features()))
      tiles[kernel.m] = &kernel;
  tiles[1] = &gemv;
  SmallVector<ProductPlan::Tile> result = {{&gemm, tokenTiles(gemm)}};
  for (const KernelInfo *kernel : llvm::make_second_range(tiles))
    result.push_back({kernel, tokenTiles(*kernel)});
  return result;
}

ProductPlan qwen::productPlan(const KernelInfo &gemv, const KernelInfo &gemm) {
  const KernelSchedule &schedule = scheduleOf(gemm);
  // Orders without a field `panels` need none together, but a call is worth
  // its overhead from a few panels on.
  constexpr int64_t fewPanels = 4;
  const int64_t together = std::visit(
      [](const auto &loops) -> int64_t {
        if constexpr (requires { loops.panels; })
          return loops.panels;
        else
          return 1;
      },
      schedule.loops);
  return {.cached = Length(schedule.calls.cached / kPanelOutputs),
          .least = Panels(std::max(together, fewPanels)),
          .reused = Length(schedule.calls.reused),
          .together = Panels(together),
          .tiles = tilesOf(gemv, gemm)};
}

int64_t qwen::attentionTokens(const KernelInfo &scores, int64_t groupQueries) {
  const auto &schedule = scheduleOf(scores).loops;
  const auto tokensOf = [&](const auto &loops) {
    const int64_t tokens = std::max<int64_t>(1, loops.strip / groupQueries);
    return tokens < loops.tokens ? tokens
                                 : tokens / loops.tokens * loops.tokens;
  };
  if (const auto *dots = std::get_if<PageDotsSchedule>(&schedule))
    return tokensOf(*dots);
  return tokensOf(std::get<PageChainsSchedule>(schedule));
}
