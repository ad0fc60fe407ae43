//===- KernelTest.cpp - Generated kernels against the reference -----------===//
//
// Every kernel of the table must compute the bits of its reference and must not
// access other memory. The environment names the files of kernels, separated by
// ':': QWEN_KERNELS for kernels that this machine can run, and
// QWEN_MODELLED_KERNELS, whose instructions every machine has.
//
//===----------------------------------------------------------------------===//

#include "artifact/ElfMapping.h"
#include "qwen/Support/Error.h"
#include "qwen/Verify/KernelVerifier.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

using namespace qwen;

/// The files that an environment variable names.
static std::vector<ElfMapping> openFiles(const char *variable) {
  const char *paths = std::getenv(variable);
  if (paths == nullptr)
    throw Error(std::string("set ") + variable +
                " to files made by make-kernels");
  std::vector<ElfMapping> files;
  std::istringstream stream(paths);
  for (std::string path; std::getline(stream, path, ':');)
    files.emplace_back(path);
  return files;
}

static const std::vector<ElfMapping> &kernelFiles() {
  static const std::vector<ElfMapping> result = openFiles("QWEN_KERNELS");
  return result;
}

static const std::vector<ElfMapping> &modelledFiles() {
  static const std::vector<ElfMapping> result =
      openFiles("QWEN_MODELLED_KERNELS");
  return result;
}

/// The function of a kernel in a file, for any target, or null.
static void *lookup(const ElfMapping &file, std::string_view kernel) {
  for (const auto &[name, address] : file.entries())
    if (name.substr(0, name.find('.')) == kernel)
      return address;
  return nullptr;
}

/// K is less than a block, whole blocks, and blocks with a shorter last one.
static VerifySizes allSizes() {
  VerifySizes sizes;
  sizes.depths = {32, 96, 128, 160, 256, 288, 1056};
  if (std::getenv("QWEN_TEST_FULL") != nullptr)
    sizes.depths.insert(sizes.depths.end(), {64, 224, 416});
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    sizes.headDims.push_back(headDim);
  // One, two and more tiles of each M, also an odd number.
  sizes.tokens = {1, 5, 9, 17, 72};
  return sizes;
}

/// More tokens than any kernel takes at a time.
static VerifySizes manyTokens() {
  VerifySizes sizes;
  sizes.depths = {672};
  sizes.tokens = {144};
  return sizes;
}

/// Compares the function of `kernel`, in each file that has it, with its
/// reference. Returns how many there are.
static int checkKernel(const KernelInfo &kernel,
                       const std::vector<ElfMapping> &files) {
  int found = 0;
  for (const ElfMapping &file : files)
    if (void *function = lookup(file, kernel.name)) {
      SCOPED_TRACE(file.entries().front().first);
      try {
        EXPECT_GT(KernelVerifier(allSizes()).verify(kernel, function), 0);
        if (isLinear(kernel.op))
          EXPECT_GT(KernelVerifier(manyTokens()).verify(kernel, function), 0);
      } catch (const Error &difference) {
        ADD_FAILURE() << difference.what();
      }
      ++found;
    }
  return found;
}

namespace qwen {
/// How GoogleTest prints a kernel.
static void PrintTo(const KernelInfo &kernel, std::ostream *stream) {
  *stream << kernel.name;
}
} // namespace qwen

class KernelTest : public testing::TestWithParam<KernelInfo> {};

TEST_P(KernelTest, IsItsReference) {
  const KernelInfo &kernel = GetParam();
  const int modelled = checkKernel(kernel, modelledFiles());
  const CpuFeatureSet missing = kernel.features() - hostFeatures();
  if (missing.empty())
    EXPECT_GT(checkKernel(kernel, kernelFiles()), 0)
        << "no file has this kernel";
  else if (modelled == 0)
    GTEST_SKIP() << "this machine lacks " << toString(missing);
}

static std::vector<KernelInfo> kernelsOfThisArchitecture() {
  std::vector<KernelInfo> kernels;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.arch() == hostArch())
      kernels.push_back(kernel);
  return kernels;
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelTest,
                         testing::ValuesIn(kernelsOfThisArchitecture()),
                         [](const auto &kernel) {
                           return std::string(kernel.param.name);
                         });

TEST(KernelFiles, HaveRowsThatThisMachineRuns) {
  int found = 0;
  for (const ElfMapping &file : kernelFiles())
    for (const KernelInfo &kernel : kernelsOfThisArchitecture())
      if (hostFeatures().containsAll(kernel.features()))
        found += lookup(file, kernel.name) != nullptr;
  EXPECT_GT(found, 0);
}
