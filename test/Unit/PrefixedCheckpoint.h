//===- PrefixedCheckpoint.h - Two text models in a folder -------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_PREFIXEDCHECKPOINT_H
#define QWEN_TEST_UNIT_PREFIXEDCHECKPOINT_H

#include "Safetensors.h"
#include "TempDir.h"

#include "qwen/Import/Models/Import.h"

#include <functional>

namespace qwen::test {

/// The text model of a checkpoint, and one whose names begin with "draft.".
inline constexpr ModelProgram kTwoTextModels[] = {
    kModelPrograms[0], {"draft", {"draft.model.", "draft."}, buildTextModel}};

/// Writes the folder `from` to `dir`, its tensors a second time with the prefix
/// "draft.". The second tensor NAME has the values of `valuesOf(NAME)`.
inline void writeTwice(
    const std::string &from, const TempDir &dir,
    const std::function<std::string(const std::string &name)> &valuesOf) {
  std::filesystem::copy(from + "/config.json", dir.path() / "config.json");
  const Safetensors file(from + "/model.safetensors");
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  const auto add = [&](const std::string &name, const std::string &values) {
    const std::vector<char> bytes = file.get<char>(values);
    const nlohmann::json &tensor = file.tensors().at(values);
    header[name] = {
        {"dtype", tensor.at("dtype")},
        {"shape", tensor.at("shape")},
        {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data.append(bytes.begin(), bytes.end());
  };
  for (const auto &[name, tensor] : file.tensors().items())
    if (name != "__metadata__") {
      add(name, name);
      add("draft." + name, valuesOf(name));
    }
  const std::string text = header.dump();
  std::string length;
  for (int i = 0; i < 8; ++i)
    length += static_cast<char>(text.size() >> (8 * i));
  dir.write("model.safetensors", length + text + data);
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_PREFIXEDCHECKPOINT_H
