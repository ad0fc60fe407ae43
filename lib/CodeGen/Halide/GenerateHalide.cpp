//===- GenerateHalide.cpp - Halide's kernels to bitcode -------------------===//
//
// generate-halide BITCODE INDEX
//
// Writes the bitcode of all kernels of the table that Halide makes, one behind
// the other, and a line {name, offset, size} for each. The build runs it.
//
//===----------------------------------------------------------------------===//

#include "HalideKernels.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <cstdio>
#include <fstream>

using namespace qwen;

/// Halide's target: no runtime, no threads, no checks of buffers, and floats
/// exactly as written.
static Halide::Target target(const KernelInfo &kernel) {
  using Halide::Target;
  std::vector<Target::Feature> features = {Target::NoRuntime, Target::NoAsserts,
                                           Target::NoBoundsQuery,
                                           Target::StrictFloat};
  if (kernel.arch() == Arch::AArch64) {
    // The feature has Halide leave f16 conversions to LLVM (fcvtn, fcvtl, which
    // Armv8.0 has) instead of writing them out; kernels do no f16 arithmetic.
    features.push_back(Target::ARMFp16);
    return Target(Target::Linux, Target::ARM, 64, features);
  }
  features.insert(features.end(), {Target::SSE41, Target::AVX, Target::AVX2,
                                   Target::FMA, Target::F16C});
  if (kernel.features().contains(CpuFeature::AVX512F))
    features.insert(features.end(), {Target::AVX512, Target::AVX512_Skylake});
  return Target(Target::Linux, Target::X86, 64, features);
}

static halide::Kernel build(const KernelInfo &kernel) {
  switch (kernel.op) {
#define QWEN_BUILD_MLIR(Op, Function)
#define QWEN_BUILD_Cpp(Op, Function)
#define QWEN_BUILD_Halide(Op, Function)                                        \
  case KernelOp::Op:                                                           \
    return halide::Function(kernel);
#define QWEN_KERNEL_OP(Op, Function, Provider, ...)                            \
  QWEN_BUILD_##Provider(Op, Function)
#include "qwen/ABI/KernelOps.def"
  default:
    throw Error("kernel '" + std::string(kernel.name) +
                "' is not one that halide provides");
  }
}

/// Bitcode of a module that defines a function named `kernel.name` in Halide's
/// calling convention.
static std::string compile(const KernelInfo &kernel) {
  const halide::Kernel built = build(kernel);
  const MemoryFile file;
  Halide::Pipeline(built.outputs)
      .compile_to_module(built.arguments, std::string(kernel.name),
                         target(kernel), Halide::LinkageType::External)
      .compile({{Halide::OutputFileType::bitcode, file.path()}});
  return file.contents();
}

static void generate(const char *bitcodeFile, const char *indexFile) {
  std::ofstream bitcode(bitcodeFile, std::ios::binary), index(indexFile);
  size_t offset = 0;
  for (const KernelInfo &kernel : kernelTable()) {
    if (kernel.provider() != KernelProvider::Halide)
      continue;
    // A module's bitcode is aligned to 4 bytes.
    std::string bytes = compile(kernel);
    index << "{\"" << kernel.name << "\", " << offset << ", " << bytes.size()
          << "},\n";
    bytes.resize(alignTo(static_cast<int64_t>(bytes.size()), 8));
    bitcode << bytes;
    offset += bytes.size();
  }
  bitcode.close();
  index.close();
  if (!bitcode || !index)
    throw Error(std::string("cannot write '") + bitcodeFile + "' and '" +
                indexFile + "'");
}

int main(int argc, char **argv) {
  try {
    if (argc != 3)
      throw Error("usage: generate-halide BITCODE INDEX");
    generate(argv[1], argv[2]);
  } catch (const std::exception &error) {
    fprintf(stderr, "generate-halide: %s\n", error.what());
    return 1;
  }
  return 0;
}
