//===- Instances.cpp - Driver functions with their constants --------------===//

#include "Instances.h"

#include "qwen/CodeGen/Driver/Driver.h"
#include "qwen/CodeGen/FunctionTypes.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <cmath>
#include <functional>
#include <map>

using namespace mlir;
using namespace qwen;

/// A function of the driver, by its declaration.
#define QWEN_DRIVER(Symbol)                                                    \
  Function {                                                                   \
    #Symbol,                                                                   \
        typeOf(static_cast<decltype(&(Symbol))>(nullptr), module.getContext()) \
  }

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Instances::Instances(ModuleOp module)
    : module(module), builder(module.getLoc(), module.getContext()) {}

std::string Instances::declare(const Function &function) {
  if (!module.lookupSymbol(function.name)) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    func::FuncOp::create(builder, function.name, function.type).setPrivate();
  }
  return function.name;
}

std::string Instances::add(const std::string &name, const Function &driver,
                           ArrayRef<Constant> constants) {
  declare(driver);
  if (module.lookupSymbol(name))
    return name;
  builder.setInsertionPointToEnd(module.getBody());
  auto instance = func::FuncOp::create(
      builder, name,
      builder.getFunctionType(
          driver.type.getInputs().drop_back(constants.size()), {}));
  instance.setPrivate();
  instance->setAttr("passthrough", builder.getStrArrayAttr({"noinline"}));
  builder.setInsertionPointToStart(instance.addEntryBlock());
  SmallVector<Value> arguments(instance.getArguments());
  for (const Constant &constant : constants)
    arguments.push_back(
        std::visit([&](const auto &of) { return value(of); }, constant));
  func::CallOp::create(builder, driver.name, TypeRange(), arguments);
  func::ReturnOp::create(builder);
  return name;
}

Value Instances::value(int64_t number) {
  return arith::ConstantIntOp::create(builder, number, 64);
}

Value Instances::value(float number) {
  return arith::ConstantFloatOp::create(builder, builder.getF32Type(),
                                        APFloat(number));
}

Value Instances::value(const KernelInfo *kernel) {
  const Type pointer = LLVM::LLVMPointerType::get(module.getContext());
  if (!kernel)
    return LLVM::ZeroOp::create(builder, pointer);
  const Function function = {std::string(kernel->name),
                             kernelType(kernel->op, module.getContext())};
  declare(function);
  Value address =
      func::ConstantOp::create(builder, function.type, function.name);
  return UnrealizedConversionCastOp::create(builder, pointer, address)
      .getResult(0);
}

Value Instances::value(Scratch scratch) {
  return allocate(builder.getF32Type(), scratch.floats);
}

Value Instances::value(const Tiles &tiles) {
  // DriverTile: a pointer and an int64.
  Value array =
      allocate(builder.getI64Type(), 2 * static_cast<int64_t>(tiles.size()));
  const auto store = [&](Value field, size_t index) {
    Value at =
        LLVM::GEPOp::create(builder, array.getType(), builder.getI64Type(),
                            array, LLVM::GEPArg(static_cast<int32_t>(index)));
    LLVM::StoreOp::create(builder, field, at);
  };
  for (size_t i = 0; i < tiles.size(); ++i) {
    store(value(tiles[i]), 2 * i);
    store(value(tiles[i]->m), 2 * i + 1);
  }
  return array;
}

Value Instances::allocate(Type element, int64_t count) {
  return LLVM::AllocaOp::create(builder,
                                LLVM::LLVMPointerType::get(module.getContext()),
                                element, value(count), /*alignment=*/64);
}

static std::string named(StringRef op, const KernelInfo &kernel) {
  return (op + "." + StringRef(kernel.name)).str();
}

std::string Instances::barrier() {
  return declare(QWEN_DRIVER(qwenDriverBarrier));
}
std::string Instances::trace() { return declare(QWEN_DRIVER(qwenDriverTrace)); }
std::string Instances::wantHidden() {
  return declare(QWEN_DRIVER(qwenDriverWantHidden));
}

std::string Instances::hiddenRows(const KernelInfo &norm,
                                  const KernelInfo &check) {
  return add(named("hidden_rows", norm), QWEN_DRIVER(qwenDriverHiddenRows),
             {&norm, &check});
}

std::string Instances::instance(ForwardOp op, const CachePlace &place) {
  const SmallVector<const KernelInfo *> kernels(
      llvm::map_range(op.getKernelsAttr().getAsRange<KernelAttr>(),
                      [](KernelAttr kernel) { return kernel.getInfo(); }));
  Operation *operation = op;
  if (isa<LinearOp>(operation))
    return linear(kernels);
  if (isa<LmHeadOp>(operation))
    return lmHead(kernels);
  if (auto appending = dyn_cast<AppendOp>(operation))
    return append(appending, kernels, place);
  if (auto attending = dyn_cast<AttentionOp>(operation))
    return attention(attending, kernels, place);
  if (auto rule = dyn_cast<DeltaRuleOp>(operation))
    return deltaRule(rule, kernels, place);
  if (isa<ShortConvolutionOp>(operation))
    return add(named("short_convolution", *kernels[0]),
               QWEN_DRIVER(qwenDriverShortConvolution),
               {place.cache, place.stride, kernels[0]});
  if (isa<GateOp>(operation) && kernels.size() == 2)
    return add(named("gate", *kernels[1]), QWEN_DRIVER(qwenDriverGateQ8),
               {kernels[0], kernels[1]});
  if (auto norm = dyn_cast<RmsNormOp>(operation); norm && norm.getHeadDim())
    return add(named("head_norm", *kernels[0]), QWEN_DRIVER(qwenDriverHeadNorm),
               {kernels[0]});
  // The functions with one kernel.
  const std::pair<KernelOp, Function> functions[] = {
      {KernelOp::Embed, QWEN_DRIVER(qwenDriverEmbedding)},
      {KernelOp::RopeTable, QWEN_DRIVER(qwenDriverRopeTable)},
      {KernelOp::RmsNormF32, QWEN_DRIVER(qwenDriverRmsNormF32)},
      {KernelOp::RmsNormQ8, QWEN_DRIVER(qwenDriverRmsNormQ8)},
      {KernelOp::QuantizeQ8, QWEN_DRIVER(qwenDriverQuantize)},
      {KernelOp::SwiGluF32, QWEN_DRIVER(qwenDriverSwiGluF32)},
      {KernelOp::SwiGluQ8, QWEN_DRIVER(qwenDriverSwiGluQ8)},
      {KernelOp::SigmoidGate, QWEN_DRIVER(qwenDriverGateF32)},
      {KernelOp::DeltaGates, QWEN_DRIVER(qwenDriverDeltaGates)},
  };
  const KernelInfo &kernel = *kernels.front();
  for (const auto &[kind, driver] : functions)
    if (kind == kernel.op)
      return add(named(op->getName().stripDialect(), kernel), driver,
                 {&kernel});
  llvm_unreachable("an op without a function of the driver");
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The GEMM, the kernels for fewer tokens that run where it and the GEMV do,
/// and the GEMV.
static std::vector<const KernelInfo *> tilesOf(const KernelInfo &gemv,
                                               const KernelInfo &gemm) {
  std::map<int64_t, const KernelInfo *, std::greater<>> tiles;
  const CpuFeatureSet features = gemv.features() | gemm.features();
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.op == gemv.op && kernel.format == gemv.format &&
        kernel.m < gemm.m && features.containsAll(kernel.features()))
      tiles[kernel.m] = &kernel;
  tiles[gemm.m] = &gemm;
  tiles[1] = &gemv;
  const auto kernels = llvm::make_second_range(tiles);
  return {kernels.begin(), kernels.end()};
}

std::vector<Instances::Constant> Instances::productConstants(Kernels kernels) {
  const KernelInfo &gemv = *kernels[0], &gemm = *kernels[1];
  const KernelSchedule &schedule = scheduleOf(gemm);
  const LoopNest loops = loopNest(gemm, schedule);
  const bool arranges = loops == LoopNest::UnpackOnce || loops == LoopNest::Amx;
  const Tiles tiles = tilesOf(gemv, gemm);
  return {schedule.cached / kPanelOutputs,
          schedule.panels,
          schedule.reused,
          arranges ? schedule.panels : int64_t{1},
          tiles,
          static_cast<int64_t>(tiles.size())};
}

std::string Instances::linear(Kernels kernels) {
  return add(named("linear", *kernels[1]),
             kernels[0]->op == KernelOp::LinearF32
                 ? QWEN_DRIVER(qwenDriverLinearF32)
                 : QWEN_DRIVER(qwenDriverLinearQ8),
             productConstants(kernels));
}

std::string Instances::lmHead(Kernels kernels) {
  std::vector<Constant> constants = productConstants(kernels);
  constants.insert(constants.begin(), kernels[2]);
  return add(named("lm_head", *kernels[1]),
             kernels[0]->op == KernelOp::LinearF32
                 ? QWEN_DRIVER(qwenDriverLmHeadF32)
                 : QWEN_DRIVER(qwenDriverLmHeadQ8),
             constants);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The driver's parameter for a kernel of kind `op`.
static const KernelInfo *ofKind(Kernels kernels, KernelOp op) {
  const auto *found = llvm::find_if(
      kernels, [&](const KernelInfo *kernel) { return kernel->op == op; });
  return found == kernels.end() ? nullptr : *found;
}

static const KernelInfo *headNormOf(Kernels kernels) {
  return ofKind(kernels, KernelOp::RmsNormF32);
}

int64_t Instances::cacheElementBytes() {
  return kvElementBytes(
      module->getAttrOfType<KvFormatAttr>(kKvFormatAttr).getValue());
}

/// The factor of queries with `size` values.
static float queryScale(int64_t size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
}

/// `name` with the sizes of an instance: "append.rope_neon.2x64".
static std::string sized(std::string name, ArrayRef<int64_t> sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    name += (i ? "x" : ".") + std::to_string(sizes[i]);
  return name;
}

std::string Instances::append(AppendOp op, Kernels kernels,
                              const CachePlace &place) {
  const int64_t headDim = op.getHeadSize();
  const int64_t kvHeads = widthOf(op.getKeys()) / headDim;
  const KernelInfo *headNorm = headNormOf(kernels);
  SmallVector<int64_t> sizes = {kvHeads, headDim};
  if (op.getHeadDim())
    sizes.push_back(2 * widthOf(op.getCos()));
  return add(
      sized(named("append", *kernels[0]), sizes), QWEN_DRIVER(qwenDriverAppend),
      {kvHeads, headDim, cacheElementBytes(), place.cache, place.stride,
       Scratch{appendScratch(headDim, headNorm != nullptr)},
       ofKind(kernels, KernelOp::Rope), ofKind(kernels, KernelOp::NormRope),
       headNorm, widthOf(op.getCos()), ofKind(kernels, KernelOp::AppendK),
       ofKind(kernels, KernelOp::AppendV)});
}

/// Tokens of a unit of attention with `groupQueries` queries a token: about a
/// strip of queries, and whole tiles of them where tokens allow it.
static int64_t blockTokens(const KernelSchedule &schedule,
                           int64_t groupQueries) {
  const int64_t tokens = std::max<int64_t>(1, schedule.strip / groupQueries);
  const int64_t tile = schedule.tokens;
  return tokens < tile ? tokens : tokens / tile * tile;
}

std::string Instances::attention(AttentionOp op, Kernels kernels,
                                 const CachePlace &place) {
  const auto kvHeads = static_cast<int64_t>(op.getKvHeads());
  const int64_t headDim = op.getHeadDim();
  const int64_t groupQueries = static_cast<int64_t>(op.getHeads()) / kvHeads;
  const KernelInfo *scores = ofKind(kernels, KernelOp::AttentionScores);
  const KernelInfo *headNorm = headNormOf(kernels);
  const int64_t tokens = blockTokens(scheduleOf(*scores), groupQueries);
  std::vector<Constant> constants = {
      kvHeads,
      groupQueries,
      headDim,
      cacheElementBytes(),
      place.cache,
      place.stride,
      queryScale(headDim),
      tokens,
      Scratch{attentionScratch(groupQueries, headDim, tokens) +
              (headNorm ? headDim : 0)},
      ofKind(kernels, KernelOp::Rope),
      ofKind(kernels, KernelOp::NormRope),
      headNorm,
      widthOf(op.getCos())};
  // Those from `scores` on.
  llvm::append_range(constants, kernels.take_back(5));
  SmallVector<int64_t> sizes = {kvHeads * groupQueries, kvHeads, headDim};
  if (op.getPartial())
    sizes.push_back(2 * widthOf(op.getCos()));
  return add(sized(named("attention", *kernels[0]), sizes),
             QWEN_DRIVER(qwenDriverAttention), constants);
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

std::string Instances::deltaRule(DeltaRuleOp op, Kernels kernels,
                                 const CachePlace &place) {
  const auto keyHeads = static_cast<int64_t>(op.getKeyHeads());
  const int64_t heads = op.getValueHeads(), keyDim = op.getKeyDim(),
                valueDim = op.getValueDim(), sharing = op.getSharing();
  return add(sized(named("delta_rule", *kernels[0]),
                   {keyHeads, keyDim, heads, valueDim, sharing}),
             QWEN_DRIVER(qwenDriverDeltaRule),
             {place.cache, place.stride, keyHeads, keyDim, heads, valueDim,
              sharing, queryScale(keyDim), Scratch{deltaRuleScratch(keyDim)},
              kernels[0]});
}
