//===- HalideKernels.cpp - Halide's kernels to bitcode --------------------===//

#include "qwen/CodeGen/Halide/HalideKernels.h"

#include "Kernels.h"
#include "qwen/ABI/Error.h"
#include "qwen/ABI/MemoryFile.h"

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
#define QWEN_BUILD_MLIR(Op, Function)
#define QWEN_BUILD_Halide(Op, Function)                                        \
  if (kernel.op == KernelOp::Op)                                               \
    return halide::Function(kernel);
#define QWEN_KERNEL_OP(Op, Function, Provider, ...)                            \
  QWEN_BUILD_##Provider(Op, Function)
#include "qwen/ABI/KernelOps.def"
  throw Error("kernel '" + std::string(kernel.name) +
              "' is not one that halide provides");
}

std::string qwen::halideFunctionName(const KernelInfo &kernel) {
  return std::string(kernel.name) + "_halide";
}

std::string qwen::halideBitcode(const KernelInfo &kernel) {
  try {
    const halide::Kernel built = build(kernel);
    const MemoryFile file;
    Halide::Pipeline(built.outputs)
        .compile_to_module(built.arguments, halideFunctionName(kernel),
                           target(kernel), Halide::LinkageType::External)
        .compile({{Halide::OutputFileType::bitcode, file.path()}});
    return file.contents();
  } catch (const Halide::Error &error) {
    // What Halide says ends with a newline.
    const std::string_view what = error.what();
    throw Error("halide refuses kernel '" + std::string(kernel.name) +
                "': " + std::string(what.substr(0, what.find('\n'))));
  }
}
