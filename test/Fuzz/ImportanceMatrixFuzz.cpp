//===- ImportanceMatrixFuzz.cpp - Importance matrices ---------------------===//

#include "Fuzz.h"

#include "qwen/Import/Checkpoint/ImportanceMatrix.h"

#include <cmath>

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A copy, so that AddressSanitizer sees a read past the end.
  const std::vector<uint8_t> file = fuzz::copyOf(data, size);
  fuzz::parses(size, [&] {
    uint64_t values = 0;
    for (const auto &[name, row] : parseImportanceMatrix(file, "d/f")) {
      fuzz::require(!row.empty(), "a row has no values");
      values += row.size();
      for (float value : row)
        fuzz::require(std::isfinite(value) && value >= 0,
                      "a value is no mean square");
    }
    fuzz::require(values * sizeof(float) <= size,
                  "there are more values than the file has");
  });
  return 0;
}
