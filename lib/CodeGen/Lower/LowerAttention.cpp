//===- LowerAttention.cpp - Cache append and attention --------------------===//

#include "LowerFunctions.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace qwen;

/// A unit is a KV head of one token.
static constexpr std::string_view kAppend = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %keys: i64, %key_stride: i64, %values: i64, %value_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %op: i32) attributes {passthrough = ["noinline"]} {
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

/// A unit is a KV head of a block of tokens, with all query heads that share
/// it: what is read of the cache serves all of them. The first and the last
/// block follow each other, then the second and the one before the last, so
/// that threads have equal work although later tokens of a prompt see more.
static constexpr std::string_view kAttentionUnits =
    R"mlir(    scf.for %unit = %first to %last step %c1 : i64 {
      %turn = arith.divui %unit, %heads : i64
      %head = arith.remui %unit, %heads : i64
      %pair = arith.divui %turn, %c2 : i64
      %second = arith.remui %turn, %c2 : i64
      %from_back = arith.subi %last_block, %pair : i64
      %is_second = arith.cmpi eq, %second, %c1 : i64
      %block = arith.select %is_second, %from_back, %pair : i64
      %first_token = arith.muli %block, %block_tokens : i64
      %after = arith.addi %first_token, %block_tokens : i64
      %last_token = arith.minui %after, %tokens : i64
      %done = scf.while (%start = %first_token) : (i64) -> i64 {
        %more = arith.cmpi ult, %start, %last_token : i64
        scf.condition(%more) %start : i64
      } do {
      ^bb0(%start: i64):
        %count = func.call @run_length(%context, %start, %last_token) : (!llvm.ptr, i64, i64) -> i64
        func.call @attention_run(%context, %start, %count, %head, %queries, %query_stride, %cos, %sin, %rope_stride, %norm, %eps, %layer, %out, %out_stride) : (!llvm.ptr, i64, i64, i64, i64, i64, i64, i64, i64, i64, f32, i64, i64, i64) -> ()
        %next = arith.addi %start, %count : i64
        scf.yield %next : i64
      }
    })mlir";

static constexpr std::string_view kAttention = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %queries: i64, %query_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %out: i64, %out_stride: i64, %op: i32) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  %heads = arith.constant ${kvHeads} : i64
  %block_tokens = arith.constant ${blockTokens} : i64
  %tokens = func.call @tokens(%context) : (!llvm.ptr) -> i64
  %blocks = arith.ceildivui %tokens, %block_tokens : i64
  %last_block = arith.subi %blocks, %c1 : i64
  %units = arith.muli %blocks, %heads : i64
${over.units}
  return
}
// How many of the tokens from `start` to `last` follow each other in one page
// of one sequence.
func.func private @run_length(%context: !llvm.ptr, %start: i64, %last: i64) -> i64 {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %page_tokens = arith.constant ${pageTokens} : i64
  %sequences = arith.constant ${sequences} : i64
  %yes = arith.constant true
  %sequence = func.call @element(%context, %sequences, %start) : (!llvm.ptr, i64, i64) -> i32
  %position = func.call @position(%context, %start) : (!llvm.ptr, i64) -> i64
  %page = arith.divui %position, %page_tokens : i64
  %count, %all = scf.for %token = %start to %last step %c1 iter_args(%so_far = %c0, %going_on = %yes) -> (i64, i1) : i64 {
    %its_sequence = func.call @element(%context, %sequences, %token) : (!llvm.ptr, i64, i64) -> i32
    %its_position = func.call @position(%context, %token) : (!llvm.ptr, i64) -> i64
    %its_page = arith.divui %its_position, %page_tokens : i64
    %expected = arith.addi %position, %so_far : i64
    %same_sequence = arith.cmpi eq, %its_sequence, %sequence : i32
    %same_page = arith.cmpi eq, %its_page, %page : i64
    %next_position = arith.cmpi eq, %its_position, %expected : i64
    %both = arith.andi %same_sequence, %same_page : i1
    %belongs = arith.andi %both, %next_position : i1
    %still = arith.andi %going_on, %belongs : i1
    %more = arith.extui %still : i1 to i64
    %new = arith.addi %so_far, %more : i64
    scf.yield %new, %still : i64, i1
  }
  return %count : i64
}
)mlir";

/// The tokens of a run see the same pages, all of each but of the last one. A
/// row is a query head of a token; rows of a token follow each other. The state
/// (M, L, O) of all rows starts as the first page's; the following pages are
/// merged to the other of two buffers in turn. The products know what is read
/// next, the page's values and then the next page's keys: a page is too short
/// for the processor to see what follows.
static constexpr std::string_view kAttentionRun = R"mlir(
func.func private @attention_run(%context: !llvm.ptr, %start: i64, %count: i64, %head: i64, %queries: i64, %query_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %out: i64, %out_stride: i64) attributes {passthrough = ["noinline"]} {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  %groups = arith.constant ${groups} : i64
  %dim = arith.constant ${headDim} : i64
  %half = arith.constant ${half} : i64
  %page_tokens = arith.constant ${pageTokens} : i64
  %page_bytes = arith.constant ${pageBytes} : i64
  %head_bytes = arith.constant ${headBytes} : i64
  %half_layer = arith.constant ${halfLayerBytes} : i64
  %token_size = arith.constant ${querySize} : i64
  %token_scores = arith.constant ${scoreSize} : i64
  %state_rows = arith.constant ${stateRows} : i64
  %state_size = arith.constant ${stateSize} : i64
  %query_size = arith.constant ${blockQuerySize} : i64
  %score_size = arith.constant ${blockScoreSize} : i64
  %scale = arith.constant ${scale} : f32
  %query = llvm.alloca %query_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %scores = llvm.alloca %score_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %weighted = llvm.alloca %score_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %of_page = llvm.alloca %state_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state0 = llvm.alloca %state_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %state1 = llvm.alloca %state_size x f32 {alignment = 64 : i64} : (i64) -> !llvm.ptr
  %all_queries = func.call @arena(%context, %queries) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_cos = func.call @arena(%context, %cos) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_sin = func.call @arena(%context, %sin) : (!llvm.ptr, i64) -> !llvm.ptr
  %all_out = func.call @arena(%context, %out) : (!llvm.ptr, i64) -> !llvm.ptr
  %w = func.call @weights(%context, %norm) : (!llvm.ptr, i64) -> !llvm.ptr
  %rows = arith.muli %count, %groups : i64
  %row_steps = arith.ceildivui %rows, %state_rows : i64
  %padded_rows = arith.muli %row_steps, %state_rows : i64
  scf.for %i = %c0 to %count step %c1 : i64 {
    %token = arith.addi %start, %i : i64
    %c = func.call @row(%all_cos, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %s = func.call @row(%all_sin, %token, %rope_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q_row = func.call @row(%all_queries, %token, %query_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %q = func.call @row(%q_row, %head, %token_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %to = func.call @row(%query, %i, %token_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    scf.for %g = %c0 to %groups step %c1 : i64 {
      %x = func.call @row(%q, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %y = func.call @row(%to, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      func.call @${rope}(${rope.arguments}) : ${rope.type}
    }
  }
  %position = func.call @position(%context, %start) : (!llvm.ptr, i64) -> i64
  %pages_before = arith.divui %position, %page_tokens : i64
  %pages = arith.addi %pages_before, %c1 : i64
  // Slots of the last page that the first and the last token see.
  %slot = arith.remui %position, %page_tokens : i64
  %first_visible = arith.addi %slot, %c1 : i64
  %last_visible = arith.addi %slot, %count : i64
  %in_page = arith.muli %head, %head_bytes : i64
  %offset = arith.addi %layer, %in_page : i64
  %final, %spare = scf.for %number = %c0 to %pages step %c1 iter_args(%old = %state0, %new = %state1) -> (!llvm.ptr, !llvm.ptr) : i64 {
    %whole = arith.cmpi ne, %number, %pages_before : i64
    %visible = arith.select %whole, %page_tokens, %last_visible : i64
    %page = func.call @page(%context, %start, %number, %page_bytes) : (!llvm.ptr, i64, i64, i64) -> !llvm.ptr
    %k = func.call @bytes(%page, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
    %v = func.call @bytes(%k, %half_layer) : (!llvm.ptr, i64) -> !llvm.ptr
    %first = arith.cmpi eq, %number, %c0 : i64
    %to_m = arith.select %first, %old, %of_page : !llvm.ptr
    %to_l = func.call @row(%to_m, %c1, %padded_rows) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %to_o = func.call @row(%to_m, %c2, %padded_rows) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    func.call @${scores}(%query, %k, %scale, %scores, %rows, %dim, %visible, %v) : ${scores.type}
    scf.if %whole {
      func.call @${softmax}(%scores, %rows, %page_tokens, %weighted, %to_m, %to_l) : ${softmax.type}
      %next_number = arith.addi %number, %c1 : i64
      %next_page = func.call @page(%context, %start, %next_number, %page_bytes) : (!llvm.ptr, i64, i64, i64) -> !llvm.ptr
      %next_k = func.call @bytes(%next_page, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
      func.call @${values}(%weighted, %v, %to_o, %rows, %dim, %page_tokens, %next_k) : ${values.type}
    } else {
      scf.for %i = %c0 to %count step %c1 : i64 {
        %n = arith.addi %first_visible, %i : i64
        %i_s = func.call @row(%scores, %i, %token_scores) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %i_p = func.call @row(%weighted, %i, %token_scores) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %i_m = func.call @row(%to_m, %i, %groups) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        %i_l = func.call @row(%to_l, %i, %groups) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        func.call @${softmax}(%i_s, %groups, %n, %i_p, %i_m, %i_l) : ${softmax.type}
        %i_o = func.call @row(%to_o, %i, %token_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
        func.call @${values}(%i_p, %v, %i_o, %groups, %dim, %n, %v) : ${values.type}
      }
    }
    %next_old, %next_new = scf.if %first -> (!llvm.ptr, !llvm.ptr) {
      scf.yield %old, %new : !llvm.ptr, !llvm.ptr
    } else {
      func.call @${merge}(%old, %of_page, %rows, %dim, %new) : ${merge.type}
      scf.yield %new, %old : !llvm.ptr, !llvm.ptr
    }
    scf.yield %next_old, %next_new : !llvm.ptr, !llvm.ptr
  }
  %final_l = func.call @row(%final, %c1, %padded_rows) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  %final_o = func.call @row(%final, %c2, %padded_rows) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  scf.for %i = %c0 to %count step %c1 : i64 {
    %token = arith.addi %start, %i : i64
    %first_row = arith.muli %i, %groups : i64
    %out_row = func.call @row(%all_out, %token, %out_stride) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    %out_heads = func.call @row(%out_row, %head, %token_size) : (!llvm.ptr, i64, i64) -> !llvm.ptr
    scf.for %g = %c0 to %groups step %c1 : i64 {
      %r = arith.addi %first_row, %g : i64
      %r_l = func.call @row(%final_l, %r, %c1) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %o = func.call @row(%final_o, %r, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %y = func.call @row(%out_heads, %g, %dim) : (!llvm.ptr, i64, i64) -> !llvm.ptr
      %l = llvm.load %r_l : !llvm.ptr -> f32
      func.call @${finish}(%o, %l, %dim, %y) : ${finish.type}
    }
  }
  return
}
)mlir";

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

/// The arguments of a kernel that rotates %x to %y.
static std::string ropeArguments(const KernelInfo &rope) {
  return rope.op == KernelOp::NormRope ? "%x, %w, %c, %s, %half, %eps, %y"
                                       : "%x, %c, %s, %half, %y";
}

/// Tokens of a unit of attention with `groups` query heads each: about a strip
/// of rows, and whole tiles of them where tokens allow it.
static int64_t tokensOfBlock(const KernelSchedule &schedule, int64_t groups) {
  const int64_t tokens = std::max<int64_t>(1, schedule.strip / groups);
  const int64_t tile = schedule.tokens;
  return tokens < tile ? tokens : tokens / tile * tile;
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
  const int64_t groups = shape.heads / shape.kvHeads;
  const int64_t tokens = tokensOfBlock(scheduleOf(scores), groups);
  const int64_t rows = tokens * groups;
  substitutions["blockTokens"] = std::to_string(tokens);
  substitutions["stateRows"] = std::to_string(kStateQueries);
  substitutions["stateSize"] =
      std::to_string(2 * alignTo(rows, kStateQueries) + rows * shape.headDim);
  substitutions["blockQuerySize"] = std::to_string(rows * shape.headDim);
  substitutions["blockScoreSize"] = std::to_string(rows * kPageTokens);
  declare(rope, "rope", substitutions);
  declare(scores, "scores", substitutions);
  declare(values, "values", substitutions);
  declare(softmax, "softmax", substitutions);
  declare(merge, "merge", substitutions);
  declare(finish, "finish", substitutions);
  substitutions["rope.arguments"] = ropeArguments(rope);
  add("attention_run", kAttentionRun, substitutions);
  substitutions["over.units"] = overUnits(
      "%units", "%c1", "%c1", replace(kAttentionUnits, substitutions));
  return add("attention", kAttention, substitutions);
}
