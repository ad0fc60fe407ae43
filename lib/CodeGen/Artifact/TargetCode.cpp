//===- TargetCode.cpp - The targets of one file ---------------------------===//

#include "qwen/CodeGen/Artifact/TargetCode.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

CpuFeatureSet qwen::usedFeatures(mlir::ModuleOp module, Arch arch) {
  CpuFeatureSet features = leastFeatures(arch);
  for (const std::string &name : calledKernels(module))
    features = features | findKernel(name)->features();
  return features;
}

//===----------------------------------------------------------------------===//
// The best target
//===----------------------------------------------------------------------===//

/// The instruction sets of the kernels that a module calls, as a set of bits by
/// KernelIsa. Newer instruction sets give a larger number.
static uint64_t instructionSets(mlir::ModuleOp module) {
  uint64_t sets = 0;
  for (const std::string &name : calledKernels(module))
    sets |= uint64_t{1} << static_cast<unsigned>(findKernel(name)->isa);
  return sets;
}

std::vector<std::string> qwen::orderTargets(std::vector<TargetCode> &targets) {
  std::vector<std::string> warnings;
  // Newest first; of equals, only the first stays.
  std::vector<TargetCode> kept;
  for (TargetCode &code : targets) {
    const uint64_t sets = instructionSets(*code.module);
    auto place = llvm::find_if(kept, [&](const TargetCode &other) {
      return instructionSets(*other.module) <= sets;
    });
    if (place == kept.end() || instructionSets(*place->module) < sets)
      kept.insert(place, std::move(code));
    else
      warnings.push_back("target '" + code.target.name +
                         "' gets no code of its own: it runs that of '" +
                         place->target.name +
                         "', which uses the same CPU features");
  }
  targets = std::move(kept);
  return warnings;
}

//===----------------------------------------------------------------------===//
// Shared facts
//===----------------------------------------------------------------------===//

static std::string print(mlir::Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

namespace {
/// Compares the facts that two targets would share.
class SharedFacts {
public:
  SharedFacts(const TargetCode &first, const TargetCode &other)
      : first(first), other(other) {}

  void check() const {
    checkEqual(kWeightBytesAttr, (*first.module)->getAttr(kWeightBytesAttr),
               (*other.module)->getAttr(kWeightBytesAttr));
    for (auto [a, b] :
         llvm::zip_equal(programsOf(*first.module), programsOf(*other.module)))
      for (const char *name :
           {kModelAttr, kLimitsAttr, kStepBackAttr, kArenaBytesAttr,
            kInputsAttr, kOutputsAttr, kOpsAttr, kWorkAttr, kCachesAttr})
        checkEqual(name, a->getAttr(name), b->getAttr(name));
    checkSymbols<ImageOp>();
    checkSymbols<WeightOp>();
    checkSymbols<PackedOp>();
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error("targets '" + first.target.name + "' and '" +
                part::subject(other.target.name) +
                "' cannot share a file: " + what + "; compile a file for each");
  }

  void checkEqual(llvm::StringRef what, mlir::Attribute a,
                  mlir::Attribute b) const {
    if (a != b)
      fail(what.str() + " is " + print(a) + " for the first and " + print(b) +
           " for the second");
  }

  template <typename OpType> void checkSymbols() const {
    auto a = (*first.module).getOps<OpType>();
    auto b = (*other.module).getOps<OpType>();
    auto i = a.begin();
    auto j = b.begin();
    for (; i != a.end() && j != b.end(); ++i, ++j)
      checkEqual((*i).getSymName(), (*i)->getAttrDictionary(),
                 (*j)->getAttrDictionary());
    if (i != a.end() || j != b.end())
      fail("their weight images have different parts");
  }

  const TargetCode &first, &other;
};
} // namespace

void qwen::checkShared(llvm::ArrayRef<TargetCode> targets) {
  for (const TargetCode &other : targets.drop_front())
    SharedFacts(targets.front(), other).check();
}
