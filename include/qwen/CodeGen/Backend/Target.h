//===- Target.h - Targets of generated code ---------------------*- C++ -*-===//
//
// Resolves a named CPU or a list of features to the feature set from which
// kernels are selected.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_TARGET_H
#define QWEN_CODEGEN_BACKEND_TARGET_H

#include "qwen/ABI/CpuFeatures.h"
#include "llvm/ADT/StringRef.h"
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// A set of features with a name, for which the compiler makes code.
struct Target {
  /// The requested name. For "native" this machine's CPU or, if LLVM does not
  /// know it, hostTarget(). It is the suffix of the generated functions.
  std::string name;
  Arch arch = Arch::X86_64;
  /// The features of the machine that are in CpuFeatures.def.
  CpuFeatureSet features;
  /// LLVM's name of the CPU to schedule for, or "generic" if the name is a list
  /// of features. It never adds instructions.
  std::string tuneCpu;
  /// LLVM's tuning features that it lacks for that CPU: "+slow-paired-128", or
  /// "". They choose among instructions and never add any.
  std::string tuneFeatures;
  /// LLVM's target triple.
  std::string triple;
};

/// A named core or machine.
struct NamedTarget {
  /// The name for `--target`.
  const char *name;
  /// LLVM's name of its CPU.
  const char *cpu;
};

/// The list of `--list-targets`, by architecture. If LLVM does not have the
/// name, the CPU is the machine's. If the machine has two kinds of cores, it is
/// one with the features of both.
std::span<const NamedTarget> namedTargets();

/// Resolves one target of `--target`:
///  * "native": the features of this machine, tuned for its CPU;
///  * a CPU as clang's -mcpu (AArch64) or -march (x86-64) names it, or one of
///    namedTargets();
///  * an architecture with features: "armv8.2-a+dotprod", "x86-64-v3",
///    "x86-64-v4+avx512vnni".
/// Throws Error for an unknown name, with the most similar known name, and for
/// a target that lacks one of leastFeatures().
Target resolveTarget(llvm::StringRef spec);

/// Resolves a list of targets that are separated by commas. Throws Error like
/// resolveTarget, and for an empty item, a repeated name and targets of two
/// architectures.
std::vector<Target> resolveTargets(llvm::StringRef list);

/// The sorted CPU names that resolveTarget accepts for `arch`.
std::vector<std::string> targetCpuNames(Arch arch);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_TARGET_H
