//===- WeightFormats.cpp - The formats of weights -------------------------===//

#include "qwen/ABI/WeightFormats.h"

#include "qwen/ABI/KvFormats.h"
#include "qwen/ABI/StoredTypes.h"

#include <iterator>

using namespace qwen;

/// The names of all `rows`: "a, b or c".
template <typename RowType, size_t Count>
static std::string listNames(const RowType (&rows)[Count]) {
  std::string text;
  for (const RowType &row : rows) {
    if (!text.empty())
      text += &row == std::end(rows) - 1 ? " or " : ", ";
    text += row.name;
  }
  return text;
}

std::string qwen::weightFormatList() { return listNames(kWeightFormatInfos); }

std::string qwen::kvFormatList() { return listNames(kKvFormatInfos); }

std::string qwen::storedTypeList() { return listNames(kStoredTypeInfos); }
