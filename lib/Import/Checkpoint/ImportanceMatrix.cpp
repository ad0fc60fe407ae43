//===- ImportanceMatrix.cpp - Importance matrices of llama.cpp ------------===//

#include "qwen/Import/Checkpoint/ImportanceMatrix.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/StoredTensors.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

using namespace qwen;

static constexpr std::string_view kMagic = "GGUF", kSums = ".in_sum2",
                                  kCounts = ".counts";
/// The longest name of a row in the old form.
static constexpr int32_t kMostName = 4096;

/// Adds a row of sums over `calls` calls, or ones if there were none.
static void addRow(std::vector<float> &row, std::span<const float> sums,
                   float calls, const ErrorText &owner) {
  if (!std::isfinite(calls) || calls < 0)
    throw Error(owner + " has the count " + part::found(std::to_string(calls)) +
                " when " + part::needed("a number that is not negative") +
                " is needed");
  for (float sum : sums) {
    const float mean = calls > 0 ? sum / calls : 1;
    if (!std::isfinite(mean) || mean < 0)
      throw Error(owner + " has the value " + part::found(std::to_string(sum)) +
                  " when " + part::needed("a sum of squares") + " is needed");
    row.push_back(mean);
  }
}

/// The floats of a file, which need not be aligned there.
static std::vector<float> floatsOf(std::span<const uint8_t> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

//===----------------------------------------------------------------------===//
// GGUF
//===----------------------------------------------------------------------===//

namespace {
/// A tensor of sums and its counts.
struct SumsAndCounts {
  const StoredTensor *sums = nullptr, *counts = nullptr;
};
} // namespace

static ImportanceMatrix parseGgufForm(std::span<const uint8_t> bytes,
                                      const std::string &path) {
  const GgufFile file = parseGguf(bytes, path);
  std::map<std::string, SumsAndCounts, std::less<>> pairs;
  for (const StoredTensor &tensor : file.tensors)
    for (const auto &[suffix, member] :
         {std::pair(kSums, &SumsAndCounts::sums),
          std::pair(kCounts, &SumsAndCounts::counts)})
      if (tensor.name.ends_with(suffix)) {
        const std::string name =
            tensor.name.substr(0, tensor.name.size() - suffix.size());
        if (std::exchange(pairs[name].*member, &tensor))
          throw Error(describeTensor(tensor) + " is there twice");
        if (tensor.type != StoredType::F32)
          throw Error(describeTensor(tensor) + " has type " +
                      part::found(tensor.typeName) + " when " +
                      part::needed("F32") + " is needed");
      }
  ImportanceMatrix matrix;
  for (const auto &[name, pair] : pairs) {
    if (!pair.sums || !pair.counts)
      throw Error(
          part::file(path) + " has no tensor " +
          part::needed(quote(name + std::string(pair.sums ? kCounts : kSums))));
    const std::vector<float> sums = floatsOf(pair.sums->bytes),
                             counts = floatsOf(pair.counts->bytes);
    if (sums.size() % counts.size() != 0)
      throw Error(describeTensor(*pair.sums) + " has " +
                  part::found(sums.size()) + " values when a multiple of the " +
                  part::needed(counts.size()) + " counts is needed");
    const size_t inputs = sums.size() / counts.size();
    std::vector<float> &row = matrix[name];
    for (size_t i = 0; i < counts.size(); ++i)
      addRow(row, std::span(sums).subspan(i * inputs, inputs), counts[i],
             describeTensor(*pair.sums));
  }
  return matrix;
}

//===----------------------------------------------------------------------===//
// The old form
//===----------------------------------------------------------------------===//

namespace {
/// Reads the parts of a file of the old form.
class DatReader {
public:
  DatReader(std::span<const uint8_t> bytes, const std::string &path)
      : bytes(bytes), path(path) {}

  std::span<const uint8_t> take(uint64_t size) {
    if (size > bytes.size() - at)
      fail();
    at += size;
    return bytes.subspan(at - size, size);
  }
  int32_t integer(int32_t least, int32_t most) {
    int32_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    if (value < least || value > most)
      fail();
    return value;
  }
  [[noreturn]] void fail() const {
    throw Error(part::file(path) +
                " is no importance matrix: it is neither a GGUF file nor has "
                "names, counts and sums up to its end; " +
                part::needed("what llama-imatrix writes") + " is needed");
  }

private:
  const std::span<const uint8_t> bytes;
  const std::string &path;
  uint64_t at = 0;
};
} // namespace

/// A number of rows; of each the length of its name, the name, the number of
/// calls, the number of values, and the values. The name of a text may follow.
static ImportanceMatrix parseDatForm(std::span<const uint8_t> bytes,
                                     const std::string &path) {
  DatReader reader(bytes, path);
  ImportanceMatrix matrix;
  const int32_t rows = reader.integer(1, INT32_MAX);
  for (int32_t i = 0; i < rows; ++i) {
    const auto text =
        reader.take(static_cast<uint64_t>(reader.integer(1, kMostName)));
    const std::string name(text.begin(), text.end());
    const ErrorText owner = part::tensor(name);
    const auto calls = static_cast<float>(reader.integer(0, INT32_MAX));
    const std::vector<float> sums = floatsOf(
        reader.take(uint64_t{sizeof(float)} *
                    static_cast<uint64_t>(reader.integer(1, INT32_MAX))));
    std::vector<float> &row = matrix[name];
    if (!row.empty())
      throw Error(part::file(path) + ": " + owner + " is there twice");
    addRow(row, sums, calls, part::file(path) + ": " + owner);
  }
  return matrix;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

ImportanceMatrix qwen::parseImportanceMatrix(std::span<const uint8_t> bytes,
                                             const std::string &path) {
  const bool isGguf =
      bytes.size() >= kMagic.size() &&
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
  ImportanceMatrix matrix =
      isGguf ? parseGgufForm(bytes, path) : parseDatForm(bytes, path);
  if (matrix.empty())
    throw Error(part::file(path) + " has no " +
                part::needed("sums of squares of inputs") +
                ", which llama-imatrix writes");
  return matrix;
}

ImportanceMatrix qwen::readImportanceMatrix(const std::filesystem::path &file) {
  StoredTensors files(file.parent_path());
  return parseImportanceMatrix(files.map(file.filename()), file.string());
}
