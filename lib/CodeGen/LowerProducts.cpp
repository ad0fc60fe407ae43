//===- LowerProducts.cpp - Linear and lm_head -----------------------------===//

#include "LowerFunctions.h"

using namespace qwen;

/// All rows in a range of panels: as many as the GEMM takes, then the rest.
/// Rows are independent, so that the split never shows in the result.
static constexpr std::string_view kProduct = R"mlir(
func.func private @${name}(${x.arguments}, %w: !llvm.ptr, %bias: !llvm.ptr, %residual: !llvm.ptr, %out: !llvm.ptr, %m: i64, %k: i64, %stride: i64, %begin: i64, %end: i64) {
  %c0 = arith.constant 0 : i64
  %tile = arith.constant ${tile} : i64
  %tail = arith.remui %m, %tile : i64
  %full = arith.subi %m, %tail : i64
  %some = arith.cmpi ult, %begin, %end : i64
  %any_full = arith.cmpi ne, %full, %c0 : i64
  %run_full = arith.andi %some, %any_full : i1
  scf.if %run_full {
    func.call @${gemm}(${x}, %w, %bias, %residual, %out, %full, %k, %stride, %begin, %end) : ${gemm.type}
  }
  %any_tail = arith.cmpi ne, %tail, %c0 : i64
  %run_tail = arith.andi %some, %any_tail : i1
  scf.if %run_tail {
    %null = llvm.mlir.zero : !llvm.ptr
${x.tail}
    %residual_at = func.call @row(%residual, %full, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %no_residual = llvm.icmp "eq" %residual, %null : !llvm.ptr
    %residual_tail = arith.select %no_residual, %null, %residual_at : !llvm.ptr
    %out_tail = func.call @row(%out, %full, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${gemv}(${x.tail.values}, %w, %bias, %residual_tail, %out_tail, %tail, %k, %stride, %begin, %end) : ${gemv.type}
  }
  return
}
)mlir";

/// The same where there is no GEMM.
static constexpr std::string_view kProductGemv = R"mlir(
func.func private @${name}(${x.arguments}, %w: !llvm.ptr, %bias: !llvm.ptr, %residual: !llvm.ptr, %out: !llvm.ptr, %m: i64, %k: i64, %stride: i64, %begin: i64, %end: i64) {
  %c0 = arith.constant 0 : i64
  %some = arith.cmpi ult, %begin, %end : i64
  %any = arith.cmpi ne, %m, %c0 : i64
  %run = arith.andi %some, %any : i1
  scf.if %run {
    func.call @${gemv}(${x}, %w, %bias, %residual, %out, %m, %k, %stride, %begin, %end) : ${gemv.type}
  }
  return
}
)mlir";

static constexpr std::string_view kTailF32 =
    R"mlir(    %x_tail = func.call @row(%x, %full, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kTailQ8 =
    R"mlir(    %q_tail = func.call @row_i8(%q, %full, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %d_tail = func.call @scales_row(%d, %full, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s_tail = func.call @sums_row(%s, %full, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kPlacesF32 =
    R"mlir(  %x = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kPlacesQ8 =
    R"mlir(  %q = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %d = func.call @arena(%context, %scales) : (!llvm.ptr, i64) -> !llvm.ptr
  %s = func.call @arena(%context, %sums) : (!llvm.ptr, i64) -> !llvm.ptr)mlir";

static constexpr std::string_view kLinear = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, ${in.arguments}, %weight: i64, %k: i64, %panels: i64, %bias: i64, %residual: i64, %out: i64, %stride: i64) attributes {passthrough = ["noinline"]} {
${in.places}
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %b = func.call @weights(%context, %bias) : (!llvm.ptr, i64) -> !llvm.ptr
  %r = func.call @optional_arena(%context, %residual) : (!llvm.ptr, i64) -> !llvm.ptr
  %y = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %m = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %begin, %end = func.call @range(%context, %thread, %panels) : (!llvm.ptr, i32, i64) -> (i64, i64)
  func.call @${product}(${x}, %w, %b, %r, %y, %m, %k, %stride, %begin, %end) : (${x.types}, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64) -> ()
  return
}
)mlir";

/// Each thread tests the columns that it wrote.
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
  %begin, %end = func.call @range(%context, %thread, %panels) : (!llvm.ptr, i32, i64) -> (i64, i64)
  func.call @${product}(${x}, %w, %null, %null, %y, %m, %k, %stride, %begin, %end) : (${x.types}, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64) -> ()
  %count = arith.subi %end, %begin : i64
  %columns = arith.muli %count, %panel : i64
  scf.for %row = %c0 to %m step %c1 : i64 {
    %token = func.call @output_token(%context, %row) : (!llvm.ptr, i64) -> i64
    %logits = func.call @row(%y, %row, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %own = func.call @row(%logits, %begin, %panel) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %bad = func.call @${check}(%own, %columns) : ${check.type}
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
  }
  return
}
)mlir";

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

/// How a product's operand is passed: by one pointer, or by three where it is
/// quantized.
static std::map<std::string, std::string> operandText(const KernelInfo &gemv) {
  if (!isQuantized(gemv.format))
    return {{"x", "%x"},
            {"x.arguments", "%x: !llvm.ptr"},
            {"x.types", "!llvm.ptr"},
            {"x.tail", std::string(kTailF32)},
            {"x.tail.values", "%x_tail"},
            {"in.arguments", "%in: i64"},
            {"in.places", std::string(kPlacesF32)}};
  return {{"x", "%q, %d, %s"},
          {"x.arguments", "%q: !llvm.ptr, %d: !llvm.ptr, %s: !llvm.ptr"},
          {"x.types", "!llvm.ptr, !llvm.ptr, !llvm.ptr"},
          {"x.tail", std::string(kTailQ8)},
          {"x.tail.values", "%q_tail, %d_tail, %s_tail"},
          {"in.arguments", "%in: i64, %scales: i64, %sums: i64"},
          {"in.places", std::string(kPlacesQ8)}};
}

std::string LowerFunctions::product(const KernelInfo &gemv,
                                    const KernelInfo *gemm) {
  Substitutions substitutions = operandText(gemv);
  declare(gemv, "gemv", substitutions);
  if (!gemm)
    return add("product." + std::string(gemv.name), kProductGemv,
               substitutions);
  declare(*gemm, "gemm", substitutions);
  substitutions["tile"] = std::to_string(gemm->m);
  return add("product." + std::string(gemm->name), kProduct, substitutions);
}

std::string LowerFunctions::linear(const KernelInfo &gemv,
                                   const KernelInfo *gemm) {
  Substitutions substitutions = operandText(gemv);
  substitutions["product"] = product(gemv, gemm);
  return add("linear." + std::string((gemm ? *gemm : gemv).name), kLinear,
             substitutions);
}

std::string LowerFunctions::lmHead(const KernelInfo &gemv,
                                   const KernelInfo *gemm,
                                   const KernelInfo &check) {
  Substitutions substitutions = operandText(gemv);
  substitutions["product"] = product(gemv, gemm);
  declare(check, "check", substitutions);
  return add("lm_head." + std::string((gemm ? *gemm : gemv).name), kLmHead,
             substitutions);
}
