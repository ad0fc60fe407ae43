//===- LowerAttention.cpp - Cache append and attention --------------------===//

#include "LowerFunctions.h"

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

/// A unit is a KV head of one token, with all query heads that share it. The
/// state (M, L, O) of each query head starts as the first page's; the following
/// pages are merged to the other of two buffers in turn.
static constexpr std::string_view kAttention = R"mlir(
func.func private @${name}(%context: !llvm.ptr, %thread: i32, %queries: i64, %query_stride: i64, %cos: i64, %sin: i64, %rope_stride: i64, %norm: i64, %eps: f32, %layer: i64, %out: i64, %out_stride: i64) attributes {passthrough = ["noinline"]} {
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
// Instances
//===----------------------------------------------------------------------===//

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
