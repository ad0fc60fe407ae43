//===- FormTensors.h - Tensors of a checkpoint in memory --------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_FORMTENSORS_H
#define QWEN_TEST_UNIT_FORMTENSORS_H

#include "qwen/Numerics/Kernels.h"
#include "qwen/Weights/Forms.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <list>

namespace qwen::test {

/// The tensors of "d/f", and what its forms make of them.
class FormTensors {
public:
  FormTensors() = default;
  FormTensors(FormTensors &&) = default;
  FormTensors(const FormTensors &) = delete;

  /// Adds a tensor, or replaces it.
  template <typename T>
  void set(const std::string &name, const char *type,
           std::vector<int64_t> shape, const std::vector<T> &values) {
    std::vector<uint8_t> &bytes =
        memory.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    StoredTensor &tensor = tensors[name];
    tensor.name = name;
    tensor.path = "d/f";
    tensor.type = parseStoredType(type);
    tensor.typeName = type;
    tensor.shape = std::move(shape);
    tensor.bytes = bytes;
  }
  void erase(const std::string &name) { tensors.erase(name); }

  /// The source of "m.weight", or null. It reads these tensors.
  WeightSourcePtr make(const char *, const std::string &) && = delete;
  WeightSourcePtr make(const char *method, const std::string &config) const & {
    const nlohmann::json value = nlohmann::json::parse(config);
    const JsonSource source = JsonSource::ofFile("c");
    const WeightSources sources =
        makeSources(tensors, {value, "q", source}, method);
    const WeightSources::Entry *entry = sources.find("m.weight");
    return entry ? entry->source : nullptr;
  }

private:
  TensorsByName tensors;
  std::list<std::vector<uint8_t>> memory;
};

inline std::vector<float> valuesOf(const WeightSource &source) {
  std::vector<float> values(static_cast<size_t>(source.shape().values()));
  source.read(0, source.shape().outputs(), values.data());
  return values;
}

/// What the panels of kept integers hold, at an odd lane.
inline std::vector<float> keptValues(const WeightSource &source,
                                     WeightFormat format) {
  const int64_t k = source.shape().k();
  std::vector<float> values, row(static_cast<size_t>(k));
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
  for (int64_t i = 0; i < source.shape().outputs(); i += 3) {
    const int64_t count = std::min<int64_t>(3, source.shape().outputs() - i);
    const OutputSet all = (OutputSet{1} << count) - 1;
    EXPECT_EQ(source.kept(format, i, count), all);
    source.keep(format, i, all, 5, panel.data());
    for (int64_t j = 0; j < count; ++j) {
      numerics::reference<KernelOp::Embed>(kernelFormat(format))(
          panel.data(), static_cast<int32_t>(5 + j), k, row.data());
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return values;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_FORMTENSORS_H
