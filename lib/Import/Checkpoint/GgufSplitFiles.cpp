//===- GgufSplitFiles.cpp - A model in several GGUF files -----------------===//

#include "GgufCheckpoint.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/SplitName.h"

#include <algorithm>

using namespace qwen;

void qwen::addSplitFiles(StoredTensors &tensors, const std::string &file,
                         GgufFile &gguf) {
  const auto pathOf = [&](const std::string &name) {
    return (tensors.directory() / name).string();
  };
  const auto integer = [&](const GgufFile &of, const std::string &path,
                           const char *key, int64_t most) {
    const JsonSource source = JsonSource::ofFile(path);
    return JsonValue(of.values, source).at(key).integer(0, most);
  };
  if (!gguf.values.contains("split.count"))
    return;
  const std::string first = pathOf(file);
  const int64_t count = integer(gguf, first, "split.count", UINT16_MAX);
  if (count < 2)
    return;
  const auto checkPlace = [&](const GgufFile &of, const std::string &name,
                              int64_t number) {
    const int64_t foundNumber =
        integer(of, pathOf(name), "split.no", UINT16_MAX);
    const int64_t foundCount =
        integer(of, pathOf(name), "split.count", UINT16_MAX);
    if (foundNumber != number || foundCount != count)
      throw Error(part::file(pathOf(name)) + " says that it is " +
                  part::found("file " + std::to_string(foundNumber + 1) +
                              " of " + std::to_string(foundCount)) +
                  " when " +
                  part::needed("file " + std::to_string(number + 1) + " of " +
                               std::to_string(count)) +
                  " is needed");
  };
  checkPlace(gguf, file, 0);
  for (int64_t number = 1; number < count; ++number) {
    const auto name = ggufSplitName(file, static_cast<uint64_t>(number));
    if (!name)
      throw Error(part::file(first) + " is one of " + std::to_string(count) +
                  " files when its name is not of the form " +
                  part::needed("NAME-00001-of-0000N.gguf"));
    GgufFile other = parseGguf(tensors.map(*name), pathOf(*name));
    checkPlace(other, *name, number);
    std::ranges::move(other.tensors, std::back_inserter(gguf.tensors));
  }
  const int64_t total = integer(gguf, first, "split.tensors.count", INT32_MAX);
  if (static_cast<size_t>(total) != gguf.tensors.size())
    throw Error(part::file(first) + ": " +
                part::subject("split.tensors.count") + " is " +
                part::found(total) + " when the files have " +
                part::needed(gguf.tensors.size()) + " tensors");
}
