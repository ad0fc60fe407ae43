//===- ImportanceMatrixTest.cpp - Importance matrices of llama.cpp --------===//

#include "qwen/Import/Checkpoint/ImportanceMatrix.h"

#include "GgufBytes.h"
#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static ImportanceMatrix parsed(const std::string &file) {
  return parseImportanceMatrix(
      {reinterpret_cast<const uint8_t *>(file.data()), file.size()}, "dir/f");
}
static std::string matrixErrorOf(const std::string &file) {
  return messageOf([&] { parsed(file); });
}

static std::string floats(const std::vector<float> &values) {
  std::string bytes;
  for (float value : values)
    bytes += raw(value);
  return bytes;
}

/// A file of the old form, with a row for each name.
static std::string datFile(const std::vector<std::string> &names,
                           const std::vector<float> &sums, int32_t calls) {
  std::string file = raw(static_cast<int32_t>(names.size()));
  for (const std::string &name : names)
    file += raw(static_cast<int32_t>(name.size())) + name + raw(calls) +
            raw(static_cast<int32_t>(sums.size())) + floats(sums);
  return file;
}

/// A GGUF file with sums of two experts and their counts.
static std::string ggufFile(const std::vector<float> &sums,
                            const std::vector<float> &counts) {
  const GgufBytes file = {
      {string("general.type", "imatrix")},
      {{"a.in_sum2", {sums.size() / counts.size(), counts.size()}},
       {"a.counts", {1, counts.size()}}}};
  std::string bytes = file.make();
  // Tensors lie at multiples of 32 bytes, the sums first.
  const size_t second = bytes.size() - 32;
  const size_t first = second - (sums.size() * 4 + 31) / 32 * 32;
  bytes.replace(first, sums.size() * 4, floats(sums));
  bytes.replace(second, counts.size() * 4, floats(counts));
  return bytes;
}

using Rows = ImportanceMatrix;

TEST(ImportanceMatrix, ReadsBothForms) {
  const Rows expected = {{"a", {1, 2, 0.5}}, {"b", {1, 2, 0.5}}};
  EXPECT_EQ(parsed(datFile({"a", "b"}, {4, 8, 2}, 4)), expected);
  // The name of the text may follow.
  EXPECT_EQ(parsed(datFile({"a", "b"}, {4, 8, 2}, 4) + raw(int32_t{7}) +
                   raw(int32_t{4}) + "text"),
            expected);
  EXPECT_EQ(parsed(ggufFile({4, 8, 3, 9}, {4, 3})),
            (Rows{{"a", {1, 2, 1, 3}}}));
  // Nothing is known of an expert that no token chose.
  EXPECT_EQ(parsed(ggufFile({0, 0, 3, 9}, {0, 3})),
            (Rows{{"a", {1, 1, 1, 3}}}));
}

TEST(ImportanceMatrix, RefusesOtherFiles) {
  const std::string whole = datFile({"a"}, {4, 8, 2}, 4);
  const std::string refusal =
      "dir/f is no importance matrix: it is neither a GGUF file nor has "
      "names, counts and sums up to its end; what llama-imatrix writes is "
      "needed";
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(matrixErrorOf(whole.substr(0, size)), refusal);
  EXPECT_EQ(matrixErrorOf("{\"version\": 1}"), refusal);
  EXPECT_EQ(matrixErrorOf(datFile({"a", "a"}, {4}, 4)),
            "dir/f: tensor \"a\" is there twice");
  EXPECT_EQ(matrixErrorOf(datFile({"\x1b[2J"}, {-4}, 4)),
            "dir/f: tensor \"\\u001b[2J\" has the value -4.000000 when a sum "
            "of squares is needed");
  EXPECT_EQ(matrixErrorOf(ggufFile({4, 8, 3, 9}, {4, -3})),
            "dir/f: tensor \"a.in_sum2\" has the count -3.000000 when a number "
            "that is not negative is needed");
  EXPECT_EQ(matrixErrorOf(GgufBytes{{}, {{"a.counts", {1, 2}}}}.make()),
            "dir/f has no tensor \"a.in_sum2\"");
  EXPECT_EQ(
      matrixErrorOf(GgufBytes{{}, {{"blk.0.attn_q.weight", {32, 2}}}}.make()),
      "dir/f has no sums of squares of inputs, which llama-imatrix "
      "writes");
  EXPECT_EQ(
      matrixErrorOf(
          GgufBytes{{}, {{"a.in_sum2", {32, 2}, StoredType::Q8_0}}}.make()),
      "dir/f: tensor \"a.in_sum2\" has type Q8_0 when F32 is needed");
}
