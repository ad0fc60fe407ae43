//===- LowerRows.cpp - Embedding, norms, quantization, SwiGLU -------------===//

#include "LowerFunctions.h"

using namespace qwen;

static constexpr std::string_view kEmbedding = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %weight: i64, %k: i64, %out: i64, %stride: i64) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %ids = arith.constant ${tokenIds} : i64
  %table = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %units = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %token = %begin to %end step %c1 : i64 {
    %id = func.call @element(%context, %ids, %token) : (!llvm.ptr, i64, i64) -> i32
    %y = func.call @row(%to, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${kernel}(%table, %id, %k, %y) : ${kernel.type}
  }
  return
}
)mlir";

static constexpr std::string_view kRopeTable = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %weight: i64, %half: i64, %cos: i64, %sin: i64, %stride: i64) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %positions = arith.constant ${positions} : i64
  %frequencies = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %cos_rows = func.call @arena(%context, %cos) : (!llvm.ptr, i64) -> !llvm.ptr
  %sin_rows = func.call @arena(%context, %sin) : (!llvm.ptr, i64) -> !llvm.ptr
  %units = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %token = %begin to %end step %c1 : i64 {
    %position = func.call @element(%context, %positions, %token) : (!llvm.ptr, i64, i64) -> i32
    %c = func.call @row(%cos_rows, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @row(%sin_rows, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${kernel}(%position, %frequencies, %half, %c, %s) : ${kernel.type}
  }
  return
}
)mlir";

/// The tokens, or with `rows` the output rows, of a norm.
static constexpr std::string_view kNormUnits = R"mlir(
func.func private @norm_units(%context: !llvm.ptr, %rows: i1) -> i64 {
  %all = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %some = func.call @rows(%context) : (!llvm.ptr) -> i64
  %units = arith.select %rows, %some, %all : i64
  return %units : i64
}
func.func private @norm_token(%context: !llvm.ptr, %rows: i1, %unit: i64) -> i64 {
  %token = scf.if %rows -> i64 {
    %wanted = func.call @output_token(%context, %unit) : (!llvm.ptr, i64) -> i64
    scf.yield %wanted : i64
  } else {
    scf.yield %unit : i64
  }
  return %token : i64
}
)mlir";

static constexpr std::string_view kRmsNormF32 = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %rows: i1, %weight: i64, %k: i64, %eps: f32, %out: i64, %stride: i64) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %from = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %units = func.call @norm_units(%context, %rows) : (!llvm.ptr, i1) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = func.call @norm_token(%context, %rows, %unit) : (!llvm.ptr, i1, i64) -> i64
    %x = func.call @row(%from, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %y = func.call @row(%to, %unit, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${kernel}(%x, %w, %k, %eps, %y) : ${kernel.type}
  }
  return
}
)mlir";

static constexpr std::string_view kRmsNormQ8 = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %rows: i1, %weight: i64, %k: i64, %eps: f32, %out: i64, %stride: i64, %scales: i64, %sums: i64, %op: i32) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %from = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %to_scales = func.call @arena(%context, %scales) : (!llvm.ptr, i64) -> !llvm.ptr
  %to_sums = func.call @arena(%context, %sums) : (!llvm.ptr, i64) -> !llvm.ptr
  %units = func.call @norm_units(%context, %rows) : (!llvm.ptr, i1) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = func.call @norm_token(%context, %rows, %unit) : (!llvm.ptr, i1, i64) -> i64
    %x = func.call @row(%from, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q = func.call @row_i8(%to, %unit, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %d = func.call @scales_row(%to_scales, %unit, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @sums_row(%to_sums, %unit, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %bad = func.call @${kernel}(%x, %w, %k, %eps, %q, %d, %s) : ${kernel.type}
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
  }
  return
}
)mlir";

static constexpr std::string_view kHiddenRows = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %weight: i64, %k: i64, %eps: f32, %op: i32) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %from = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %weight) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @output(%context) : (!llvm.ptr) -> !llvm.ptr
  %units = func.call @rows(%context) : (!llvm.ptr) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = func.call @output_token(%context, %unit) : (!llvm.ptr, i64) -> i64
    %x = func.call @row(%from, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %y = func.call @row(%to, %unit, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${kernel}(%x, %w, %k, %eps, %y) : ${kernel.type}
    %bad = func.call @${check}(%y, %k) : ${check.type}
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
  }
  return
}
)mlir";

static constexpr std::string_view kQuantize = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %k: i64, %out: i64, %stride: i64, %scales: i64, %sums: i64, %op: i32) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %from = func.call @arena(%context, %in) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %to_scales = func.call @arena(%context, %scales) : (!llvm.ptr, i64) -> !llvm.ptr
  %to_sums = func.call @arena(%context, %sums) : (!llvm.ptr, i64) -> !llvm.ptr
  %units = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %token = %begin to %end step %c1 : i64 {
    %x = func.call @row(%from, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q = func.call @row_i8(%to, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %d = func.call @scales_row(%to_scales, %token, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @sums_row(%to_sums, %token, %k) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %bad = func.call @${kernel}(%x, %k, %q, %d, %s) : ${kernel.type}
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
  }
  return
}
)mlir";

/// A unit is a block of one token. The two functions differ in the kernel's
/// outputs only.
static constexpr std::string_view kSwiGlu = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %gate: i64, %up: i64, %in_stride: i64, %n: i64, %out: i64, %stride: i64${q8.arguments}) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %block = arith.constant ${block} : i64
  %gates = func.call @arena(%context, %gate) : (!llvm.ptr, i64) -> !llvm.ptr
  %ups = func.call @arena(%context, %up) : (!llvm.ptr, i64) -> !llvm.ptr
  %to = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr${q8.places}
  %tokens = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %blocks = func.call @blocks(%n) : (i64) -> i64
  %units = arith.muli %tokens, %blocks : i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = arith.divui %unit, %blocks : i64
    %b = arith.remui %unit, %blocks : i64
    %column = arith.muli %b, %block : i64
    %rest = arith.subi %n, %column : i64
    %size = arith.minui %rest, %block : i64
    %g_row = func.call @row(%gates, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %g = func.call @row(%g_row, %c1, %column) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %u_row = func.call @row(%ups, %token, %in_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %u = func.call @row(%u_row, %c1, %column) : (!llvm.ptr, i64, i64) -> !llvm.ptr
${call}
  }
  return
}
)mlir";

static constexpr std::string_view kSwiGluF32Call = R"mlir(
    %y_row = func.call @row(%to, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %y = func.call @row(%y_row, %c1, %column) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${kernel}(%g, %u, %size, %y) : ${kernel.type})mlir";

static constexpr std::string_view kSwiGluQ8Places = R"mlir(
  %to_scales = func.call @arena(%context, %scales) : (!llvm.ptr, i64) -> !llvm.ptr
  %to_sums = func.call @arena(%context, %sums) : (!llvm.ptr, i64) -> !llvm.ptr
  %group = arith.constant ${group} : i64)mlir";

static constexpr std::string_view kSwiGluQ8Call = R"mlir(
    %q_row = func.call @row_i8(%to, %token, %stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q = func.call @bytes(%q_row, %column) : (!llvm.ptr, i64) -> !llvm.ptr
    %d = func.call @row(%to_scales, %c1, %unit) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s_row = func.call @sums_row(%to_sums, %token, %n) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s_column = arith.divui %column, %group : i64
    %s = func.call @row(%s_row, %c1, %s_column) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %bad = func.call @${kernel}(%g, %u, %size, %q, %d, %s) : ${kernel.type}
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ())mlir";

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

std::string LowerFunctions::rowKernel(const std::string &prefix,
                                      const KernelInfo &kernel,
                                      std::string_view text) {
  Substitutions substitutions;
  declare(kernel, "kernel", substitutions);
  return add(prefix + "." + std::string(kernel.name), text, substitutions);
}

std::string LowerFunctions::embedding(const KernelInfo &kernel) {
  return rowKernel("embedding", kernel, kEmbedding);
}
std::string LowerFunctions::ropeTable(const KernelInfo &kernel) {
  return rowKernel("rope_table", kernel, kRopeTable);
}
std::string LowerFunctions::rmsNormF32(const KernelInfo &kernel) {
  add("norm_units", kNormUnits, {});
  return rowKernel("rms_norm", kernel, kRmsNormF32);
}
std::string LowerFunctions::rmsNormQ8(const KernelInfo &kernel) {
  add("norm_units", kNormUnits, {});
  return rowKernel("rms_norm", kernel, kRmsNormQ8);
}
std::string LowerFunctions::quantize(const KernelInfo &kernel) {
  return rowKernel("quantize", kernel, kQuantize);
}

std::string LowerFunctions::hiddenRows(const KernelInfo &norm,
                                       const KernelInfo &check) {
  Substitutions substitutions;
  declare(norm, "kernel", substitutions);
  declare(check, "check", substitutions);
  return add("hidden_rows." + std::string(norm.name), kHiddenRows,
             substitutions);
}

std::string LowerFunctions::swiGluF32(const KernelInfo &kernel) {
  Substitutions substitutions;
  declare(kernel, "kernel", substitutions);
  substitutions["q8.arguments"] = "";
  substitutions["q8.places"] = "";
  substitutions["call"] = replace(kSwiGluF32Call, substitutions);
  return add("swiglu." + std::string(kernel.name), kSwiGlu, substitutions);
}

std::string LowerFunctions::swiGluQ8(const KernelInfo &kernel) {
  Substitutions substitutions;
  declare(kernel, "kernel", substitutions);
  substitutions["q8.arguments"] = ", %scales: i64, %sums: i64, %op: i32";
  substitutions["q8.places"] = replace(kSwiGluQ8Places, {});
  substitutions["call"] = replace(kSwiGluQ8Call, substitutions);
  return add("swiglu." + std::string(kernel.name), kSwiGlu, substitutions);
}
