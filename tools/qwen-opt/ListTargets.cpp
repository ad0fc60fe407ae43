//===- ListTargets.cpp - The list of named targets ------------------------===//

#include "Compile.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using nlohmann::ordered_json;

/// The GEMV and the GEMM kernel of products with matrices in `format`.
static std::pair<std::string_view, std::string_view>
productKernels(WeightFormat format, CpuFeatureSet features) {
  const auto name = [&](bool gemm) {
    const KernelFormat weights = kernelFormat(format);
    return selectKernel(linearOp(weights), weights, features, gemm)->name;
  };
  return {name(false), name(true)};
}

static void printJson() {
  ordered_json result = ordered_json::array();
  for (const NamedTarget &named : namedTargets()) {
    const Target target = resolveTarget(named.name);
    ordered_json kernels;
    for (WeightFormat format : kWeightFormats) {
      const auto [gemv, gemm] = productKernels(format, target.features);
      kernels[weightFormatName(format)] = {{"gemv", gemv}, {"gemm", gemm}};
    }
    result.push_back({{"name", target.name},
                      {"cpu", named.cpu},
                      {"arch", archName(target.arch)},
                      {"features", target.features.names()},
                      {"rows", std::move(kernels)}});
  }
  llvm::outs() << result.dump(1) << '\n';
}

/// Prints `words` in lines of at most 120 columns, indented by two spaces.
static void printWrapped(llvm::ArrayRef<std::string> words) {
  size_t column = 0;
  for (const std::string &word : words) {
    if (column == 0 || column + 2 + word.size() > 120) {
      llvm::outs() << (column == 0 ? "  " : "\n  ") << word;
      column = 2 + word.size();
    } else {
      llvm::outs() << ", " << word;
      column += 2 + word.size();
    }
  }
  llvm::outs() << '\n';
}

/// Targets with the same features have the same kernels and are shown together.
static void printText() {
  struct SameFeatures {
    CpuFeatureSet features;
    std::vector<std::string> names;
  };
  std::vector<SameFeatures> lines;
  for (const NamedTarget &named : namedTargets()) {
    const CpuFeatureSet features = resolveTarget(named.name).features;
    auto line = llvm::find_if(lines, [&](const SameFeatures &other) {
      return other.features == features;
    });
    if (line == lines.end())
      line = lines.insert(line, {features, {}});
    std::string name = named.name;
    if (name != named.cpu)
      name += " (" + std::string(named.cpu) + ")";
    line->names.push_back(std::move(name));
  }
  for (const auto &[features, names] : lines) {
    llvm::outs() << toString(features) << '\n';
    printWrapped(names);
    for (WeightFormat format : kWeightFormats) {
      const auto [gemv, gemm] = productKernels(format, features);
      llvm::outs() << llvm::formatv("    {0,-8} one token {1,-36} more {2}\n",
                                    llvm::StringRef(weightFormatName(format)),
                                    llvm::StringRef(gemv),
                                    llvm::StringRef(gemm));
    }
  }
}

void qwen::listTargets(bool json) { (json ? printJson : printText)(); }
