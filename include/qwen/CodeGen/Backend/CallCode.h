//===- CallCode.h - Code of a kernel for calls of one size ------*- C++ -*-===//

#ifndef QWEN_CODEGEN_BACKEND_CALLCODE_H
#define QWEN_CODEGEN_BACKEND_CALLCODE_H

#include "qwen/CodeGen/Backend/Target.h"

#include <compare>
#include <cstdint>
#include <vector>

namespace qwen {

struct KernelInfo;

/// Sizes of a call: SizeRole::Length, Queries, Tokens and Chosen.
/// All other integers of a call are 1.
struct CallSize {
  int64_t length;
  int64_t queries = 1;
  int64_t tokens = 1;
  int64_t chosen = 1;

  auto operator<=>(const CallSize &) const = default;
};

/// Code that is generated for calls of one size.
struct CallCode {
  /// An object file with one function.
  std::vector<char> object;
  /// Passes of each loop of the function when it is entered, in the order of
  /// the loops' heads.
  std::vector<int64_t> passes;
};

/// The code of `kernel`, of Halide or C++, for `target`: what generateKernel
/// gives, with constants for the sizes, so that LLVM's scalar evolution knows
/// the passes of its loops. Paths that other sizes take are gone. Throws Error
/// if LLVM does not know the passes of a loop.
CallCode generateCall(const KernelInfo &kernel, const Target &target,
                      CallSize size);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_CALLCODE_H
