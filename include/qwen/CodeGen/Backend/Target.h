//===- Target.h - What code is made for -------------------------*- C++ -*-===//
//
// A named CPU or a list of features, resolved to the typed feature set that
// kernel selection works on.
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

/// A machine to generate code for.
struct Target {
  /// Suffix of the generated functions: the name that was asked for, or this
  /// machine's CPU for "native".
  std::string name;
  Arch arch = Arch::X86_64;
  /// The features of CpuFeatures.def that the machine has.
  CpuFeatureSet features;
  /// LLVM's name of the CPU to schedule for; "generic" where only features
  /// were named. It never adds instructions.
  std::string tuneCpu;
  /// LLVM's features of that CPU that choose among instructions and add none,
  /// where LLVM does not know better: "+slow-paired-128", or "".
  std::string tuneFeatures;
  /// LLVM's target triple.
  std::string triple;
};

/// A core or a machine that people have.
struct NamedTarget {
  /// What `--target` takes.
  const char *name;
  /// LLVM's name of its CPU.
  const char *cpu;
};

/// The names that `--list-targets` shows, by architecture. Where LLVM
/// has no such name, the CPU is the one that the machine is built of; of a
/// machine with two kinds of cores, it has the features of both.
std::span<const NamedTarget> namedTargets();

/// Resolves what `--target` takes:
///  * "native": the features of this machine, tuned for its CPU;
///  * a CPU as clang's -mcpu (AArch64) or -march (x86-64) names it, or one of
///    namedTargets();
///  * an architecture with features: "armv8.2-a+dotprod", "x86-64-v3",
///    "x86-64-v4+avx512vnni".
/// Throws Error for a name that it does not know, with the nearest one that it
/// knows, and for a machine that lacks one of leastFeatures().
Target resolveTarget(llvm::StringRef spec);

/// Resolves a list of what resolveTarget takes, separated by commas. Throws
/// Error for an empty item, for a name that is there twice and for targets of
/// two architectures.
std::vector<Target> resolveTargets(llvm::StringRef list);

/// The CPU names that resolveTarget takes for `arch`, sorted.
std::vector<std::string> targetCpuNames(Arch arch);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_TARGET_H
