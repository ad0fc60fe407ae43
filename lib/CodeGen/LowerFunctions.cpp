//===- LowerFunctions.cpp - Functions between forward and kernels ---------===//

#include "LowerFunctions.h"

#include "qwen/ABI/KernelABI.h"

#include <cassert>
#include <cmath>
#include <cstdio>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Text shared by all functions
//===----------------------------------------------------------------------===//

/// What the other functions are made of; LLVM inlines it. Fields of Context are
/// numbered in units of 8 bytes.
static constexpr std::string_view kCommon = R"mlir(
func.func private @field(%context: !llvm.ptr, %index: i64) -> i64 {
  %at = llvm.getelementptr %context[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %value = llvm.load %at : !llvm.ptr -> i64
  return %value : i64
}
func.func private @pointer(%context: !llvm.ptr, %index: i64) -> !llvm.ptr {
  %at = llvm.getelementptr %context[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %value = llvm.load %at : !llvm.ptr -> !llvm.ptr
  return %value : !llvm.ptr
}
func.func private @bytes(%base: !llvm.ptr, %offset: i64) -> !llvm.ptr {
  %at = llvm.getelementptr %base[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  return %at : !llvm.ptr
}
// Row `row` of values of 4 bytes.
func.func private @row(%base: !llvm.ptr, %row: i64, %stride: i64) -> !llvm.ptr {
  %element = arith.muli %row, %stride : i64
  %at = llvm.getelementptr %base[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  return %at : !llvm.ptr
}
// Row `row` of quantized values.
func.func private @row_i8(%base: !llvm.ptr, %row: i64, %stride: i64) -> !llvm.ptr {
  %element = arith.muli %row, %stride : i64
  %at = llvm.getelementptr %base[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  return %at : !llvm.ptr
}
// Element `index` of an array of int32 that Context points to.
func.func private @element(%context: !llvm.ptr, %field: i64, %index: i64) -> i32 {
  %array = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = llvm.getelementptr %array[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  %value = llvm.load %at : !llvm.ptr -> i32
  return %value : i32
}
func.func private @arena(%context: !llvm.ptr, %place: i64) -> !llvm.ptr {
  %field = arith.constant ${arena} : i64
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = func.call @bytes(%base, %place) : (!llvm.ptr, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
// The arena at `place`, or null where that is -1.
func.func private @optional_arena(%context: !llvm.ptr, %place: i64) -> !llvm.ptr {
  %c0 = arith.constant 0 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %given = func.call @arena(%context, %place) : (!llvm.ptr, i64) -> !llvm.ptr
  %absent = arith.cmpi slt, %place, %c0 : i64
  %at = arith.select %absent, %null, %given : !llvm.ptr
  return %at : !llvm.ptr
}
// The weight image at `offset`, or null where that is -1.
func.func private @weights(%context: !llvm.ptr, %offset: i64) -> !llvm.ptr {
  %c0 = arith.constant 0 : i64
  %field = arith.constant ${weights} : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %given = func.call @bytes(%base, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
  %absent = arith.cmpi slt, %offset, %c0 : i64
  %at = arith.select %absent, %null, %given : !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @tokens(%context: !llvm.ptr) -> i64 {
  %field = arith.constant ${tokens} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  return %value : i64
}
func.func private @rows(%context: !llvm.ptr) -> i64 {
  %field = arith.constant ${rows} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  return %value : i64
}
// The token of output row `row`.
func.func private @output_token(%context: !llvm.ptr, %row: i64) -> i64 {
  %field = arith.constant ${outputRows} : i64
  %index = func.call @element(%context, %field, %row) : (!llvm.ptr, i64, i64) -> i32
  %token = arith.extsi %index : i32 to i64
  return %token : i64
}
func.func private @output(%context: !llvm.ptr) -> !llvm.ptr {
  %field = arith.constant ${output} : i64
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  return %base : !llvm.ptr
}
// The thread's range of `units` units of work.
func.func private @range(%context: !llvm.ptr, %thread: i32, %units: i64) -> (i64, i64) {
  %field = arith.constant ${shares} : i64
  %c1 = arith.constant 1 : i64
  %c16 = arith.constant 16 : i64
  %from = arith.extui %thread : i32 to i64
  %to = arith.addi %from, %c1 : i64
  %a32 = func.call @element(%context, %field, %from) : (!llvm.ptr, i64, i64) -> i32
  %b32 = func.call @element(%context, %field, %to) : (!llvm.ptr, i64, i64) -> i32
  %a = arith.extui %a32 : i32 to i64
  %b = arith.extui %b32 : i32 to i64
  %au = arith.muli %units, %a : i64
  %bu = arith.muli %units, %b : i64
  %begin = arith.shrui %au, %c16 : i64
  %end = arith.shrui %bu, %c16 : i64
  return %begin, %end : i64, i64
}
// Where `bad` is not 0, notes that op `op` saw a value that is not finite.
func.func private @flag(%context: !llvm.ptr, %token: i64, %op: i32, %bad: i32) {
  %c0 = arith.constant 0 : i32
  %field = arith.constant ${flags} : i64
  %set = arith.cmpi ne, %bad, %c0 : i32
  scf.if %set {
    %flags = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
    %at = llvm.getelementptr %flags[%token] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %old = llvm.atomicrmw umin %at, %op monotonic : !llvm.ptr, i32
  }
  return
}
// Start of the KV page of a token's sequence that holds positions from
// 64 * page on.
func.func private @page(%context: !llvm.ptr, %token: i64, %page: i64, %bytes: i64) -> !llvm.ptr {
  %sequences = arith.constant ${sequences} : i64
  %stride_field = arith.constant ${blockTableStride} : i64
  %tables = arith.constant ${blockTables} : i64
  %pool_field = arith.constant ${kvPool} : i64
  %sequence32 = func.call @element(%context, %sequences, %token) : (!llvm.ptr, i64, i64) -> i32
  %sequence = arith.extsi %sequence32 : i32 to i64
  %stride = func.call @field(%context, %stride_field) : (!llvm.ptr, i64) -> i64
  %first = arith.muli %sequence, %stride : i64
  %entry = arith.addi %first, %page : i64
  %number32 = func.call @element(%context, %tables, %entry) : (!llvm.ptr, i64, i64) -> i32
  %number = arith.extsi %number32 : i32 to i64
  %offset = arith.muli %number, %bytes : i64
  %pool = func.call @pointer(%context, %pool_field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = func.call @bytes(%pool, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @position(%context: !llvm.ptr, %token: i64) -> i64 {
  %field = arith.constant ${positions} : i64
  %position32 = func.call @element(%context, %field, %token) : (!llvm.ptr, i64, i64) -> i32
  %position = arith.extsi %position32 : i32 to i64
  return %position : i64
}
)mlir";

static constexpr std::string_view kBarrier = R"mlir(
func.func private @barrier(%context: !llvm.ptr, %thread: i32) {
  %function_field = arith.constant ${barrier} : i64
  %state_field = arith.constant ${barrierState} : i64
  %function = func.call @pointer(%context, %function_field) : (!llvm.ptr, i64) -> !llvm.ptr
  %state = func.call @pointer(%context, %state_field) : (!llvm.ptr, i64) -> !llvm.ptr
  llvm.call %function(%state, %thread) : !llvm.ptr, (!llvm.ptr, i32) -> ()
  return
}
)mlir";

static constexpr std::string_view kWantHidden = R"mlir(
func.func private @want_hidden(%context: !llvm.ptr, %thread: i32) -> i1 {
  %c0 = arith.constant 0 : i64
  %field = arith.constant ${wantHidden} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  %set = arith.cmpi ne, %value, %c0 : i64
  return %set : i1
}
)mlir";

//===----------------------------------------------------------------------===//
// Rows in, rows out
//===----------------------------------------------------------------------===//

static constexpr std::string_view kEmbedding = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %weight: i64, %k: i64, %out: i64, %stride: i64) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %weight: i64, %half: i64, %cos: i64, %sin: i64, %stride: i64) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %rows: i1, %weight: i64, %k: i64, %eps: f32, %out: i64, %stride: i64) {
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

/// Rows of a quantized value: its scales and sums lie without gaps.
static constexpr std::string_view kBlocks = R"mlir(
func.func private @blocks(%k: i64) -> i64 {
  %block = arith.constant ${block} : i64
  %c1 = arith.constant 1 : i64
  %last = arith.subi %k, %c1 : i64
  %before = arith.divui %last, %block : i64
  %blocks = arith.addi %before, %c1 : i64
  return %blocks : i64
}
func.func private @scales_row(%base: !llvm.ptr, %row: i64, %k: i64) -> !llvm.ptr {
  %blocks = func.call @blocks(%k) : (i64) -> i64
  %at = func.call @row(%base, %row, %blocks) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @sums_row(%base: !llvm.ptr, %row: i64, %k: i64) -> !llvm.ptr {
  %group = arith.constant ${group} : i64
  %groups = arith.divui %k, %group : i64
  %at = func.call @row(%base, %row, %groups) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
)mlir";

static constexpr std::string_view kRmsNormQ8 = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %rows: i1, %weight: i64, %k: i64, %eps: f32, %out: i64, %stride: i64, %scales: i64, %sums: i64, %op: i32) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %weight: i64, %k: i64, %eps: f32, %op: i32) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %in: i64, %in_stride: i64, %k: i64, %out: i64, %stride: i64, %scales: i64, %sums: i64, %op: i32) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %gate: i64, %up: i64, %in_stride: i64, %n: i64, %out: i64, %stride: i64${q8.arguments}) {
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
// Products
//===----------------------------------------------------------------------===//

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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, ${in.arguments}, %weight: i64, %k: i64, %panels: i64, %bias: i64, %residual: i64, %out: i64, %stride: i64) {
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
func.func private @${name}(%context: !llvm.ptr, %thread: i32, ${in.arguments}, %weight: i64, %k: i64, %panels: i64, %stride: i64, %op: i32) {
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
// Attention
//===----------------------------------------------------------------------===//

/// A unit is a KV head of one token.
static constexpr std::string_view kAppend = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %keys: i64, %key_stride: i64, %values: i64, %value_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %op: i32) {
  %c1 = arith.constant 1 : i64
  %heads = arith.constant ${kvHeads} : i64
  %dim = arith.constant ${headDim} : i64
  %half = arith.constant ${half} : i64
  %page_tokens = arith.constant ${pageTokens} : i64
  %page_bytes = arith.constant ${pageBytes} : i64
  %head_bytes = arith.constant ${headBytes} : i64
  %half_layer = arith.constant ${halfLayerBytes} : i64
  %element_bytes = arith.constant ${elementBytes} : i64
  %slot_bytes = arith.constant ${slotBytes} : i64
  %y = llvm.alloca %dim x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %all_keys = func.call @arena(%context, %keys) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_values = func.call @arena(%context, %values) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_cos = func.call @arena(%context, %cos) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_sin = func.call @arena(%context, %sin) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %norm) : (!llvm.ptr, i64) -> !llvm.ptr
  %tokens = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %units = arith.muli %tokens, %heads : i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = arith.divui %unit, %heads : i64
    %head = arith.remui %unit, %heads : i64
    %position = func.call @position(%context, %token) : (!llvm.ptr, i64) -> i64
    %number = arith.divui %position, %page_tokens : i64
    %slot = arith.remui %position, %page_tokens : i64
    %page = func.call @page(%context, %token, %number, %page_bytes) : (!llvm.ptr, i64, i64, i64) -> !llvm.ptr
    %in_page = arith.muli %head, %head_bytes : i64
    %offset = arith.addi %layer, %in_page : i64
    %k_head = func.call @bytes(%page, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
    %v_head = func.call @bytes(%k_head, %half_layer) : (!llvm.ptr, i64) -> !llvm.ptr
    %k_offset = arith.muli %slot, %element_bytes : i64
    %k_slot = func.call @bytes(%k_head, %k_offset) : (!llvm.ptr, i64) -> !llvm.ptr
    %v_offset = arith.muli %slot, %slot_bytes : i64
    %v_slot = func.call @bytes(%v_head, %v_offset) : (!llvm.ptr, i64) -> !llvm.ptr
    %c = func.call @row(%all_cos, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @row(%all_sin, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %k_row = func.call @row(%all_keys, %token, %key_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %x = func.call @row(%k_row, %head, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${rope}(${rope.arguments}) : ${rope.type}
    %v_row = func.call @row(%all_values, %token, %value_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %v = func.call @row(%v_row, %head, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %bad_k = func.call @${append_k}(%y, %dim, %k_slot) : ${append_k.type}
    %bad_v = func.call @${append_v}(%v, %dim, %v_slot) : ${append_v.type}
    %bad = arith.ori %bad_k, %bad_v : i32
    func.call @flag(%context, %token, %op, %bad) : (!llvm.ptr, i64, i32, i32) -> ()
  }
  return
}
)mlir";

/// A unit is a KV head of one token, with all query heads that share it. The
/// state (M, L, O) of each query head starts as the first page's; the following
/// pages are merged to the other of two buffers in turn.
static constexpr std::string_view kAttention = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %queries: i64, %query_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %out: i64, %out_stride: i64) {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %heads = arith.constant ${kvHeads} : i64
  %groups = arith.constant ${groups} : i64
  %dim = arith.constant ${headDim} : i64
  %half = arith.constant ${half} : i64
  %page_tokens = arith.constant ${pageTokens} : i64
  %page_bytes = arith.constant ${pageBytes} : i64
  %head_bytes = arith.constant ${headBytes} : i64
  %half_layer = arith.constant ${halfLayerBytes} : i64
  %query_size = arith.constant ${querySize} : i64
  %score_size = arith.constant ${scoreSize} : i64
  %scale = arith.constant ${scale} : f32
  %query = llvm.alloca %query_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %scores = llvm.alloca %score_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %weighted = llvm.alloca %score_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %page_o = llvm.alloca %query_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %page_m = llvm.alloca %groups x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %page_l = llvm.alloca %groups x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state_m = llvm.alloca %groups x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state_l = llvm.alloca %groups x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state_o0 = llvm.alloca %query_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state_o1 = llvm.alloca %query_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %all_queries = func.call @arena(%context, %queries) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_cos = func.call @arena(%context, %cos) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_sin = func.call @arena(%context, %sin) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_out = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %norm) : (!llvm.ptr, i64) -> !llvm.ptr
  %tokens = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %units = arith.muli %tokens, %heads : i64
  %begin, %end = func.call @range(%context, %thread, %units) : (!llvm.ptr, i32, i64) -> (i64, i64)
  scf.for %unit = %begin to %end step %c1 : i64 {
    %token = arith.divui %unit, %heads : i64
    %head = arith.remui %unit, %heads : i64
    %c = func.call @row(%all_cos, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @row(%all_sin, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q_row = func.call @row(%all_queries, %token, %query_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q = func.call @row(%q_row, %head, %query_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    scf.for %g = %c0 to %groups step %c1 : i64 {
      %x = func.call @row(%q, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %y = func.call @row(%query, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      func.call @${rope}(${rope.arguments}) : ${rope.type}
    }
    %position = func.call @position(%context, %token) : (!llvm.ptr, i64) -> i64
    %length = arith.addi %position, %c1 : i64
    %pages_before = arith.divui %position, %page_tokens : i64
    %pages = arith.addi %pages_before, %c1 : i64
    %in_page = arith.muli %head, %head_bytes : i64
    %offset = arith.addi %layer, %in_page : i64
    %final, %spare = scf.for %number = %c0 to %pages step %c1 iter_args(%old = %state_o0, %new = %state_o1) -> (!llvm.ptr, !llvm.ptr) : i64 {
      %start = arith.muli %number, %page_tokens : i64
      %rest = arith.subi %length, %start : i64
      %visible = arith.minui %rest, %page_tokens : i64
      %page = func.call @page(%context, %token, %number, %page_bytes) : (!llvm.ptr, i64, i64, i64) -> !llvm.ptr
      %k = func.call @bytes(%page, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
      %v = func.call @bytes(%k, %half_layer) : (!llvm.ptr, i64) -> !llvm.ptr
      %first = arith.cmpi eq, %number, %c0 : i64
      %to_m = arith.select %first, %state_m, %page_m : !llvm.ptr
      %to_l = arith.select %first, %state_l, %page_l : !llvm.ptr
      %to_o = arith.select %first, %old, %page_o : !llvm.ptr
      func.call @${scores}(%query, %k, %scale, %scores, %groups, %dim, %visible) : ${scores.type}
      scf.for %g = %c0 to %groups step %c1 : i64 {
        %g_s = func.call @row(%scores, %g, %page_tokens) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %g_p = func.call @row(%weighted, %g, %page_tokens) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %g_m = func.call @row(%to_m, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %g_l = func.call @row(%to_l, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        func.call @${softmax}(%g_s, %visible, %g_p, %g_m, %g_l) : ${softmax.type}
      }
      func.call @${values}(%weighted, %v, %to_o, %groups, %dim, %visible) : ${values.type}
      %next_old, %next_new = scf.if %first -> (!llvm.ptr, !llvm.ptr) {
        scf.yield %old, %new : !llvm.ptr, !llvm.ptr
      } else {
        scf.for %g = %c0 to %groups step %c1 : i64 {
          %old_m = func.call @row(%state_m, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %old_l = func.call @row(%state_l, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %old_o = func.call @row(%old, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %g_m = func.call @row(%page_m, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %g_l = func.call @row(%page_l, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %g_o = func.call @row(%page_o, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %new_o = func.call @row(%new, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
          %m0 = llvm.load %old_m : !llvm.ptr -> f32
          %l0 = llvm.load %old_l : !llvm.ptr -> f32
          %m1 = llvm.load %g_m : !llvm.ptr -> f32
          %l1 = llvm.load %g_l : !llvm.ptr -> f32
          func.call @${merge}(%m0, %l0, %old_o, %m1, %l1, %g_o, %dim, %old_m, %old_l, %new_o) : ${merge.type}
        }
        scf.yield %new, %old : !llvm.ptr, !llvm.ptr
      }
      scf.yield %next_old, %next_new : !llvm.ptr, !llvm.ptr
    }
    %out_row = func.call @row(%all_out, %token, %out_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %out_heads = func.call @row(%out_row, %head, %query_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    scf.for %g = %c0 to %groups step %c1 : i64 {
      %g_l = func.call @row(%state_l, %g, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %o = func.call @row(%final, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %y = func.call @row(%out_heads, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %l = llvm.load %g_l : !llvm.ptr -> f32
      func.call @${finish}(%o, %l, %dim, %y) : ${finish.type}
    }
  }
  return
}
)mlir";

//===----------------------------------------------------------------------===//
// Signatures of the kernels
//===----------------------------------------------------------------------===//

/// The type of a kernel's function, from the declarations of KernelABI.h: P is
/// a pointer, L int64_t, I int32_t, F float; the letter before the colon is the
/// result.
template <typename T> static std::string_view typeOf() {
  if constexpr (std::is_pointer_v<T>)
    return "!llvm.ptr";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "i64";
  else if constexpr (std::is_same_v<T, int32_t>)
    return "i32";
  else {
    static_assert(std::is_same_v<T, float>);
    return "f32";
  }
}
template <typename Result, typename... Arguments>
static std::string functionType(Result (*)(Arguments...)) {
  std::string type = "(";
  ((type += std::string(type.size() > 1 ? ", " : "") +
            std::string(typeOf<Arguments>())),
   ...);
  type += ") -> ";
  if constexpr (std::is_void_v<Result>)
    return type + "()";
  else
    return type + std::string(typeOf<Result>());
}

static std::string kernelType(const KernelInfo &kernel) {
  const auto type = []<typename Fn>(Fn *function) {
    return functionType(function);
  };
  switch (kernel.op) {
  case KernelOp::Linear:
    return kernel.format == KernelFormat::F32
               ? type(static_cast<LinearF32Fn *>(nullptr))
               : type(static_cast<LinearQ8Fn *>(nullptr));
  case KernelOp::AttentionScores:
    return type(static_cast<AttentionScoresFn *>(nullptr));
  case KernelOp::AttentionValues:
    return type(static_cast<AttentionValuesFn *>(nullptr));
  case KernelOp::Embed:
    return type(static_cast<EmbedFn *>(nullptr));
  case KernelOp::RopeTable:
    return type(static_cast<RopeTableFn *>(nullptr));
  case KernelOp::RmsNormF32:
    return type(static_cast<RmsNormF32Fn *>(nullptr));
  case KernelOp::RmsNormQ8:
    return type(static_cast<RmsNormQ8Fn *>(nullptr));
  case KernelOp::QuantizeQ8:
    return type(static_cast<QuantizeQ8Fn *>(nullptr));
  case KernelOp::SwiGluF32:
    return type(static_cast<SwiGluF32Fn *>(nullptr));
  case KernelOp::SwiGluQ8:
    return type(static_cast<SwiGluQ8Fn *>(nullptr));
  case KernelOp::Rope:
    return type(static_cast<RopeFn *>(nullptr));
  case KernelOp::NormRope:
    return type(static_cast<NormRopeFn *>(nullptr));
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    return type(static_cast<AppendFn *>(nullptr));
  case KernelOp::SoftmaxPage:
    return type(static_cast<SoftmaxPageFn *>(nullptr));
  case KernelOp::MergePage:
    return type(static_cast<MergePageFn *>(nullptr));
  case KernelOp::FinishAttention:
    return type(static_cast<FinishAttentionFn *>(nullptr));
  case KernelOp::CheckFinite:
    return type(static_cast<CheckFiniteFn *>(nullptr));
  }
  __builtin_unreachable();
}

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

/// Index of a field of Context, in units of 8 bytes.
#define QWEN_FIELD(Name) {#Name, std::to_string(offsetof(Context, Name) / 8)}

static const std::map<std::string, std::string, std::less<>> &constants() {
  static const std::map<std::string, std::string, std::less<>> map = {
      QWEN_FIELD(weights),
      QWEN_FIELD(arena),
      QWEN_FIELD(kvPool),
      QWEN_FIELD(tokenIds),
      QWEN_FIELD(sequences),
      QWEN_FIELD(positions),
      QWEN_FIELD(blockTables),
      QWEN_FIELD(outputRows),
      QWEN_FIELD(flags),
      QWEN_FIELD(output),
      QWEN_FIELD(shares),
      QWEN_FIELD(barrier),
      QWEN_FIELD(barrierState),
      QWEN_FIELD(tokens),
      QWEN_FIELD(rows),
      QWEN_FIELD(blockTableStride),
      QWEN_FIELD(wantHidden),
      {"block", std::to_string(kActivationBlock)},
      {"group", std::to_string(kGroup)},
      {"panel", std::to_string(kPanelRows)},
      {"pageTokens", std::to_string(kPageTokens)},
  };
  return map;
}
#undef QWEN_FIELD

static std::string
replace(std::string_view text,
        const std::map<std::string, std::string, std::less<>> &substitutions) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find("${", at);
    result += text.substr(at, begin - at);
    if (begin == std::string_view::npos)
      break;
    const size_t end = text.find('}', begin);
    const std::string_view key = text.substr(begin + 2, end - begin - 2);
    const auto found = substitutions.find(key);
    const auto constant = constants().find(key);
    assert(found != substitutions.end() || constant != constants().end());
    result += found != substitutions.end() ? found->second : constant->second;
    at = end + 1;
  }
  return result;
}

std::string LowerFunctions::add(const std::string &name, std::string_view text,
                                const Substitutions &substitutions) {
  Substitutions all = substitutions;
  all["name"] = name;
  functions.try_emplace(name, replace(text, all));
  return name;
}

void LowerFunctions::declare(const KernelInfo &kernel, const std::string &key,
                             Substitutions &substitutions) {
  const std::string type = kernelType(kernel);
  const std::string name(kernel.name);
  declarations.try_emplace(name, "func.func private @" + name + type + "\n");
  substitutions[key] = name;
  substitutions[key + ".type"] = type;
}

std::string LowerFunctions::rowKernel(const std::string &prefix,
                                      const KernelInfo &kernel,
                                      std::string_view text) {
  Substitutions substitutions;
  declare(kernel, "kernel", substitutions);
  return add(prefix + "." + std::string(kernel.name), text, substitutions);
}

std::string LowerFunctions::barrier() { return add("barrier", kBarrier, {}); }
std::string LowerFunctions::wantHidden() {
  return add("want_hidden", kWantHidden, {});
}
std::string LowerFunctions::embedding(const KernelInfo &kernel) {
  return rowKernel("embedding", kernel, kEmbedding);
}
std::string LowerFunctions::ropeTable(const KernelInfo &kernel) {
  return rowKernel("rope_table", kernel, kRopeTable);
}
std::string LowerFunctions::rmsNormF32(const KernelInfo &kernel) {
  return rowKernel("rms_norm", kernel, kRmsNormF32);
}
std::string LowerFunctions::rmsNormQ8(const KernelInfo &kernel) {
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

//===----------------------------------------------------------------------===//
// Instances of products and attention
//===----------------------------------------------------------------------===//

/// How a product's operand is passed: by one pointer, or by three where it is
/// quantized.
static std::map<std::string, std::string, std::less<>>
operandText(const KernelInfo &gemv) {
  if (gemv.format == KernelFormat::F32)
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

/// The arguments of a kernel that rotates %x to %y.
static std::string ropeArguments(const KernelInfo &rope) {
  return rope.op == KernelOp::NormRope ? "%x, %w, %c, %s, %half, %eps, %y"
                                       : "%x, %c, %s, %half, %y";
}

LowerFunctions::Substitutions
LowerFunctions::attentionConstants(const AttentionShape &shape) {
  const int64_t groups = shape.heads / shape.kvHeads;
  const int64_t element = kvElementBytes(shape.format);
  // The shortest decimal that a reader takes back to the same double; rounded
  // once to f32.
  char scale[40];
  std::snprintf(scale, sizeof scale, "%.17e",
                double(float(1 / std::sqrt(double(shape.headDim)))));
  return {
      {"kvHeads", std::to_string(shape.kvHeads)},
      {"groups", std::to_string(groups)},
      {"headDim", std::to_string(shape.headDim)},
      {"half", std::to_string(shape.headDim / 2)},
      {"pageBytes", std::to_string(shape.pageBytes())},
      {"headBytes", std::to_string(shape.headDim * kPageTokens * element)},
      {"halfLayerBytes", std::to_string(shape.halfLayerBytes())},
      {"elementBytes", std::to_string(element)},
      {"slotBytes", std::to_string(shape.headDim * element)},
      {"querySize", std::to_string(groups * shape.headDim)},
      {"scoreSize", std::to_string(groups * kPageTokens)},
      {"scale", scale},
  };
}

std::string LowerFunctions::append(const AttentionShape &shape,
                                   const KernelInfo &rope,
                                   const KernelInfo &appendK,
                                   const KernelInfo &appendV) {
  Substitutions substitutions = attentionConstants(shape);
  declare(rope, "rope", substitutions);
  declare(appendK, "append_k", substitutions);
  declare(appendV, "append_v", substitutions);
  substitutions["rope.arguments"] = ropeArguments(rope);
  return add("append", kAppend, substitutions);
}

std::string
LowerFunctions::attention(const AttentionShape &shape, const KernelInfo &rope,
                          const KernelInfo &scores, const KernelInfo &values,
                          const KernelInfo &softmax, const KernelInfo &merge,
                          const KernelInfo &finish) {
  Substitutions substitutions = attentionConstants(shape);
  declare(rope, "rope", substitutions);
  declare(scores, "scores", substitutions);
  declare(values, "values", substitutions);
  declare(softmax, "softmax", substitutions);
  declare(merge, "merge", substitutions);
  declare(finish, "finish", substitutions);
  substitutions["rope.arguments"] = ropeArguments(rope);
  return add("attention", kAttention, substitutions);
}

std::string LowerFunctions::text() const {
  std::string result =
      replace(kCommon, {}) + replace(kNormUnits, {}) + replace(kBlocks, {});
  for (const auto &[name, text] : declarations)
    result += text;
  for (const auto &[name, text] : functions)
    result += text;
  return result;
}
