//===- KernelTest.cpp - Generated kernels against the reference -----------===//
//
// Every row of the kernel table must compute what its reference computes: bit
// for bit, and without touching other memory. Each comes from the files of
// kernels that the environment names, separated by ':': QWEN_KERNELS, for rows
// that this machine can run, and QWEN_MODELLED_KERNELS, whose instructions
// every machine has.
//
//===----------------------------------------------------------------------===//

#include "artifact/ElfMapping.h"
#include "qwen/ABI/Error.h"
#include "qwen/Verify/KernelVerifier.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

using namespace qwen;

/// The files that an environment variable names.
static std::vector<ElfMapping> openImages(const char *variable) {
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

static const std::vector<ElfMapping> &images() {
  static const std::vector<ElfMapping> result = openImages("QWEN_KERNELS");
  return result;
}

static const std::vector<ElfMapping> &modelledImages() {
  static const std::vector<ElfMapping> result =
      openImages("QWEN_MODELLED_KERNELS");
  return result;
}

/// The function of a row in a file, whatever target it is for; or null.
static void *lookup(const ElfMapping &image, std::string_view kernel) {
  for (const auto &[name, address] : image.entries())
    if (name.substr(0, name.find('.')) == kernel)
      return address;
  return nullptr;
}

/// Values along K are less than a block, whole blocks, and shorter last blocks.
static VerifySizes allSizes() {
  VerifySizes sizes;
  sizes.depths = {32, 64, 96, 128, 160, 192, 224, 256, 288, 416, 896, 1056};
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    sizes.headDims.push_back(headDim);
  // In tiles of each M: one, two and more, with an odd number of them too.
  sizes.tokens = {1, 5, 9, 17, 72};
  return sizes;
}

/// More tokens than any row takes at a time.
static VerifySizes manyRows() {
  VerifySizes sizes;
  sizes.depths = {672};
  sizes.tokens = {144};
  return sizes;
}

/// Compares the function of `row`, in each file that has it, with its
/// reference. Returns how many there are.
static int checkRow(const KernelInfo &row,
                    const std::vector<ElfMapping> &files) {
  int found = 0;
  for (const ElfMapping &image : files)
    if (void *kernel = lookup(image, row.name)) {
      SCOPED_TRACE(image.entries().front().first);
      try {
        EXPECT_GT(KernelVerifier(allSizes()).verify(row, kernel), 0);
        if (isLinear(row.op))
          EXPECT_GT(KernelVerifier(manyRows()).verify(row, kernel), 0);
      } catch (const Error &difference) {
        ADD_FAILURE() << difference.what();
      }
      ++found;
    }
  return found;
}

namespace qwen {
/// How GoogleTest prints a row.
static void PrintTo(const KernelInfo &row, std::ostream *stream) {
  *stream << row.name;
}
} // namespace qwen

class KernelTest : public testing::TestWithParam<KernelInfo> {};

TEST_P(KernelTest, IsItsReference) {
  const KernelInfo &row = GetParam();
  const int modelled = checkRow(row, modelledImages());
  const CpuFeatureSet missing = row.features() - hostFeatures();
  if (missing.empty())
    EXPECT_GT(checkRow(row, images()), 0) << "no file has this kernel";
  else if (modelled == 0)
    GTEST_SKIP() << "this machine lacks " << toString(missing);
}

static std::vector<KernelInfo> rowsOfThisArchitecture() {
  std::vector<KernelInfo> rows;
  for (const KernelInfo &row : kernelTable())
    if (row.arch() == hostArch())
      rows.push_back(row);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, KernelTest,
                         testing::ValuesIn(rowsOfThisArchitecture()),
                         [](const auto &row) {
                           return std::string(row.param.name);
                         });

TEST(KernelFiles, HaveRowsThatThisMachineRuns) {
  int rows = 0;
  for (const ElfMapping &image : images())
    for (const KernelInfo &row : rowsOfThisArchitecture())
      if (hostFeatures().containsAll(row.features()))
        rows += lookup(image, row.name) != nullptr;
  EXPECT_GT(rows, 0);
}
