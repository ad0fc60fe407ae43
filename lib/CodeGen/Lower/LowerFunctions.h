//===- LowerFunctions.h - Functions between forward and kernels -*- C++ -*-===//
//
// `forward` calls one function for each op, with the op's places and sizes as
// constants. Such a function is made once for each combination of kernels and
// shared by all layers and never inlined, so that code stays small: it takes
// the thread's range of the op's units, computes addresses, and calls the
// kernels.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_LOWER_LOWERFUNCTIONS_H
#define QWEN_LIB_CODEGEN_LOWER_LOWERFUNCTIONS_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelTable.h"

#include <map>
#include <string>
#include <string_view>

namespace qwen {

/// The shapes of attention, the same in all layers of a model.
struct AttentionShape {
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t layers;
  KvFormat format;

  /// Bytes of the keys (and of the values) of one layer in a page.
  int64_t halfLayerBytes() const {
    return kvHeads * headDim * kPageTokens * kvElementBytes(format);
  }
  int64_t layerBytes() const { return 2 * halfLayerBytes(); }
  int64_t pageBytes() const { return layers * layerBytes(); }
};

/// Writes the functions that `forward` needs as text of the func, scf, arith
/// and llvm dialects. Each member names a function, which it adds at its first
/// use. All functions take (context: !llvm.ptr, thread: i32) first; the
/// arguments that follow are i64 and stand for bytes from the arena's base
/// (places), bytes from the base of the weight image (weights), elements from
/// row to row (strides), or counts. A weight of -1 is absent.
class LowerFunctions {
public:
  /// Waits for all threads: ().
  std::string barrier();
  /// Calls Context::trace where there is one: (op: i32).
  std::string trace();
  /// Whether hidden rows are wanted rather than logits: () -> i1.
  std::string wantHidden();
  /// (weights, k, out, outStride).
  std::string embedding(const KernelInfo &kernel);
  /// (frequencies, half, cos, sin, stride).
  std::string ropeTable(const KernelInfo &kernel);
  /// (in, inStride, rows: i1, weights, k, eps: f32, out, outStride); with
  /// `rows` result row i is that of output row i.
  std::string rmsNormF32(const KernelInfo &kernel);
  /// The same and (scales, sums, op: i32).
  std::string rmsNormQ8(const KernelInfo &kernel);
  /// The final norm's rows as the call's output, tested for values that are not
  /// finite: (in, inStride, weights, k, eps: f32, op: i32).
  std::string hiddenRows(const KernelInfo &norm, const KernelInfo &check);
  /// (in, inStride, k, out, outStride, scales, sums, op: i32).
  std::string quantize(const KernelInfo &kernel);
  /// (gate, up, inStride, n, out, outStride).
  std::string swiGluF32(const KernelInfo &kernel);
  /// The same and (scales, sums, op: i32).
  std::string swiGluQ8(const KernelInfo &kernel);
  /// For f32 (x), else (q, scales, sums); then (weights, k, panels, bias,
  /// residual, out, stride, op: i32), where residual and out have the same
  /// stride. A residual of -1 is absent. `gemm` may be null.
  std::string linear(const KernelInfo &gemv, const KernelInfo *gemm);
  /// The same up to panels, then (stride, op: i32): rows of logits as the
  /// call's output, tested for values that are not finite.
  std::string lmHead(const KernelInfo &gemv, const KernelInfo *gemm,
                     const KernelInfo &check);
  /// (keys, keyStride, values, valueStride, cos, sin, ropeStride, norm, eps:
  /// f32, layer: bytes from a page's start, op: i32). `rope` is a row of Rope,
  /// which ignores norm and eps, or of NormRope.
  std::string append(const AttentionShape &shape, const KernelInfo &rope,
                     const KernelInfo &appendK, const KernelInfo &appendV);
  /// (queries, stride, cos, sin, ropeStride, norm, eps: f32, layer, out,
  /// outStride).
  std::string attention(const AttentionShape &shape, const KernelInfo &rope,
                        const KernelInfo &scores, const KernelInfo &values,
                        const KernelInfo &softmax, const KernelInfo &merge,
                        const KernelInfo &finish);

  /// All functions and the declarations of their kernels.
  std::string text() const;

private:
  using Substitutions = std::map<std::string, std::string>;

  /// `text` with each ${key} replaced by its substitution or constant.
  static std::string replace(std::string_view text,
                             const Substitutions &substitutions);
  /// Adds `text`, so replaced, as function `name`; returns the name.
  std::string add(const std::string &name, std::string_view text,
                  const Substitutions &substitutions);
  /// Declares a kernel; ${key} becomes its name and ${key.type} its type.
  void declare(const KernelInfo &kernel, const std::string &key,
               Substitutions &substitutions);
  /// A function of pointers that splits rows between the GEMM, exact small
  /// numbers of rows and the GEMV.
  std::string product(const KernelInfo &gemv, const KernelInfo *gemm);
  /// `compute` for the units [%first, %last) of a thread in turn, of `units` in
  /// all: its share of most of them, then what it takes of the others, `least`
  /// at a time or more, where each thread can take `together` twice. The names
  /// are values' in the function of %context, %thread and %op around it.
  std::string overUnits(std::string_view units, std::string_view together,
                        std::string_view least, std::string_view compute);
  /// The same for the panels of a product with %m, %k and %panels. `largest` is
  /// the product's row for the most tokens.
  std::string overPanels(std::string_view compute, const KernelInfo &largest,
                         const Substitutions &substitutions);
  /// Function "<prefix>.<kernel>" that calls ${kernel}.
  std::string rowKernel(const std::string &prefix, const KernelInfo &kernel,
                        std::string_view text);
  static Substitutions attentionConstants(const AttentionShape &shape);

  std::map<std::string, std::string> functions;
  std::map<std::string, std::string> declarations;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_LOWER_LOWERFUNCTIONS_H
