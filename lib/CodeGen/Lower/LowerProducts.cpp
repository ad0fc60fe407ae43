//===- LowerProducts.cpp - Linear and lm_head -----------------------------===//

#include "LowerFunctions.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

#include <functional>
#include <vector>

using namespace qwen;

/// All rows in a range of panels. Each tile takes the largest multiple of its
/// rows that the ones before it have left; rows are independent, so that the
/// split never shows in the result. Where tiles follow each other, panels that
/// fit in a core's cache are the outer loop: memory is read once
/// (docs/decisions/0006-small-batches.md). Tokens that are one tile take all
/// panels at once, so that their streams are long.
static constexpr std::string_view kProduct = R"mlir(
func.func private @${name}(${x.arguments}, %w: !llvm.ptr, %bias: !llvm.ptr, %residual: !llvm.ptr, %out: !llvm.ptr, %m: i64, %k: i64, %stride: i64, %begin: i64, %end: i64) {
  %c0 = arith.constant 0 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %no_residual = llvm.icmp "eq" %residual, %null : !llvm.ptr
  %cached = arith.constant ${cached} : i64
  %panels = arith.divui %cached, %k : i64
  %least = arith.constant ${least} : i64
  %all = arith.subi %end, %begin : i64
  // Bit m of the sizes is set where m rows are one tile.
  %tile_sizes = arith.constant ${tile.sizes} : i64
  %most = arith.constant 63 : i64
  %bit = arith.minui %m, %most : i64
  %at_bit = arith.shrui %tile_sizes, %bit : i64
  %single = arith.trunci %at_bit : i64 to i1
  %together = arith.select %single, %all, %panels : i64
  %step = arith.maxui %together, %least : i64
  scf.for %first = %begin to %end step %step : i64 {
    %next = arith.addi %first, %step : i64
    %last = arith.minsi %next, %end : i64
${tiles}
  }
  return
}
)mlir";

/// One tile of kProduct. Of %m rows, %${left} are left to it.
static constexpr std::string_view kTile = R"mlir(
    %tile${m} = arith.constant ${m} : i64
    %left${m} = arith.remui %${left}, %tile${m} : i64
    %count${m} = arith.subi %${left}, %left${m} : i64
    %some${m} = arith.cmpi ne, %count${m}, %c0 : i64
    scf.if %some${m} {
      %done = arith.subi %m, %${left} : i64
${x.rows}
      %residual_row = func.call @row(%residual, %done, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %residual_at = arith.select %no_residual, %null, %residual_row : !llvm.ptr
      %out_at = func.call @row(%out, %done, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      func.call @${kernel}(${x.at}, %w, %bias, %residual_at, %out_at, %count${m}, %k, %stride, %first, %last) : ${kernel.type}
    }
)mlir";

static constexpr std::string_view kRowsF32 =
    R"mlir(      %x_at = func.call @row(%x, %done, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kRowsQ8 =
    R"mlir(      %q_at = func.call @row_i8(%q, %done, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %d_at = func.call @scales_row(%d, %done, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %s_at = func.call @sums_row(%s, %done, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kPlacesF32 =
    R"mlir(  %x = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kPlacesQ8 =
    R"mlir(  %q = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %d = func.call @arena(%context, %scales) : (!llvm.ptr, i64) -> !llvm.ptr
  %s = func.call @arena(%context, %sums) : (!llvm.ptr, i64) -> !llvm.ptr)mlir";

/// The panels that share what is done to the activations, which of one token is
/// nothing, and how many a thread takes at least: as many, and 32768 weights,
/// which are a stream that is worth starting.
static constexpr std::string_view kLeastPanels = R"mlir(
func.func private @least_panels(%m: i64, %k: i64, %most: i64) -> (i64, i64) {
  %c1 = arith.constant 1 : i64
  %single = arith.cmpi eq, %m, %c1 : i64
  %together = arith.select %single, %c1, %most : i64
  %short = arith.constant 2048 : i64
  %few = arith.divui %short, %k : i64
  %least = arith.maxui %few, %together : i64
  return %together, %least : i64, i64
}
)mlir";

static constexpr std::string_view kOverPanels =
    R"mlir(  %most_together = arith.constant ${together} : i64
  %together, %least = func.call @least_panels(%m, %k, %most_together) : (i64, i64, i64) -> (i64, i64)
${over.units})mlir";

static constexpr std::string_view kLinear = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, ${in.arguments}, %weight: i64, %k: i64, %panels: i64, %bias: i64, %residual: i64, %out: i64, %stride: i64, %op: i32) attributes {passthrough = ["noinline"]} {
${in.places}
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %b = func.call @weights(%context, %bias) : (!llvm.ptr, i64) -> !llvm.ptr
  %r = func.call @optional_arena(%context, %residual) : (!llvm.ptr, i64) -> !llvm.ptr
  %y = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %m = func.call @tokens(%context) : (!llvm.ptr) -> i64
${over.panels}
  return
}
)mlir";

static constexpr std::string_view kLinearPanels =
    R"mlir(    func.call @${product}(${x}, %w, %b, %r, %y, %m, %k, %stride, %first, %last) : (${x.types}, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64) -> ())mlir";

static constexpr std::string_view kLmHead = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, ${in.arguments}, %weight: i64, %k: i64, %panels: i64, %stride: i64, %op: i32) attributes {passthrough = ["noinline"]} {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %panel = arith.constant ${panel} : i64
${in.places}
  %null = llvm.mlir.zero : !llvm.ptr
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %y = func.call @output(%context) : (!llvm.ptr) -> !llvm.ptr
  %m = func.call @rows(%context) : (!llvm.ptr) -> i64
${over.panels}
  return
}
)mlir";

/// Each thread tests the columns that it wrote.
static constexpr std::string_view kLmHeadPanels =
    R"mlir(    func.call @${product}(${x}, %w, %null, %null, %y, %m, %k, %stride, %first, %last) : (${x.types}, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64) -> ()
    %count = arith.subi %last, %first : i64
    %columns = arith.muli %count, %panel : i64
    scf.for %row = %c0 to %m step %c1 : i64 {
      %token = func.call @output_token(%context, %row) : (!llvm.ptr, i64) -> i64
      %logits = func.call @row(%y, %row, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %own = func.call @row(%logits, %first, %panel) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %bad = func.call @${check}(%own, %columns) : ${check.type}
      func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
    })mlir";

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

/// How a product's operand is passed: by one pointer, or by three where it is
/// quantized.
static std::map<std::string, std::string> operandText(const KernelInfo &gemv) {
  if (gemv.op == KernelOp::LinearF32)
    return {{"x", "%x"},
            {"x.arguments", "%x: !llvm.ptr"},
            {"x.types", "!llvm.ptr"},
            {"x.rows", std::string(kRowsF32)},
            {"x.at", "%x_at"},
            {"in.arguments", "%in: i64"},
            {"in.places", std::string(kPlacesF32)}};
  return {{"x", "%q, %d, %s"},
          {"x.arguments", "%q: !llvm.ptr, %d: !llvm.ptr, %s: !llvm.ptr"},
          {"x.types", "!llvm.ptr, !llvm.ptr, !llvm.ptr"},
          {"x.rows", std::string(kRowsQ8)},
          {"x.at", "%q_at, %d_at, %s_at"},
          {"in.arguments", "%in: i64, %scales: i64, %sums: i64"},
          {"in.places", std::string(kPlacesQ8)}};
}

/// The rows of a product from the largest M to the smallest: the GEMM, the
/// exact ones below it that run where it and the GEMV do, and the GEMV. `gemm`
/// may be null.
static std::vector<const KernelInfo *> tilesOf(const KernelInfo &gemv,
                                               const KernelInfo *gemm) {
  std::map<int64_t, const KernelInfo *, std::greater<>> tiles;
  if (gemm) {
    const CpuFeatureSet features = gemv.features() | gemm->features();
    for (const KernelInfo &kernel : kernelTable())
      if (kernel.op == gemv.op && kernel.format == gemv.format &&
          kernel.m < gemm->m && features.containsAll(kernel.features()))
        tiles[kernel.m] = &kernel;
    tiles[gemm->m] = gemm;
  }
  tiles[1] = &gemv;
  std::vector<const KernelInfo *> result;
  result.reserve(tiles.size());
  for (const auto &[m, kernel] : tiles)
    result.push_back(kernel);
  return result;
}

std::string LowerFunctions::product(const KernelInfo &gemv,
                                    const KernelInfo *gemm) {
  Substitutions substitutions = operandText(gemv);
  std::string tiles, left = "m";
  uint64_t sizes = 0;
  for (const KernelInfo *kernel : tilesOf(gemv, gemm)) {
    Substitutions tile = substitutions;
    declare(*kernel, "kernel", tile);
    tile["m"] = std::to_string(kernel->m);
    tile["left"] = left;
    tiles += replace(kTile, tile);
    sizes |= uint64_t{1} << kernel->m;
    left = "left" + tile["m"];
  }
  substitutions["tiles"] = tiles;
  substitutions["tile.sizes"] = std::to_string(sizes);
  // Values along K of as many panels as stay in a cache.
  const KernelSchedule &schedule = scheduleOf(gemm ? *gemm : gemv);
  substitutions["cached"] = std::to_string(schedule.cached / kPanelOutputs);
  substitutions["least"] = std::to_string(schedule.panels);
  return add("product." + std::string((gemm ? *gemm : gemv).name), kProduct,
             substitutions);
}

/// Panels that share what a row does to activations before it multiplies.
static int64_t panelsTogether(const KernelInfo &kernel) {
  const KernelSchedule &schedule = scheduleOf(kernel);
  const LoopNest loops = loopNest(kernel, schedule);
  const bool arranges = loops == LoopNest::UnpackOnce || loops == LoopNest::Amx;
  return arranges ? schedule.panels : 1;
}

std::string LowerFunctions::overPanels(std::string_view compute,
                                       const KernelInfo &largest,
                                       const Substitutions &substitutions) {
  add("least_panels", kLeastPanels, {});
  return replace(kOverPanels,
                 {{"over.units", overUnits("%panels", "%together", "%least",
                                           replace(compute, substitutions))},
                  {"together", std::to_string(panelsTogether(largest))}});
}

std::string LowerFunctions::linear(const KernelInfo &gemv,
                                   const KernelInfo *gemm) {
  Substitutions substitutions = operandText(gemv);
  substitutions["product"] = product(gemv, gemm);
  substitutions["over.panels"] =
      overPanels(kLinearPanels, gemm ? *gemm : gemv, substitutions);
  return add("linear." + std::string((gemm ? *gemm : gemv).name), kLinear,
             substitutions);
}

std::string LowerFunctions::lmHead(const KernelInfo &gemv,
                                   const KernelInfo *gemm,
                                   const KernelInfo &check) {
  Substitutions substitutions = operandText(gemv);
  substitutions["product"] = product(gemv, gemm);
  declare(check, "check", substitutions);
  substitutions["over.panels"] =
      overPanels(kLmHeadPanels, gemm ? *gemm : gemv, substitutions);
  return add("lm_head." + std::string((gemm ? *gemm : gemv).name), kLmHead,
             substitutions);
}
