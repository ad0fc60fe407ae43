//===- WeightSource.h - Where the values of a weight come from --*- C++ -*-===//
//
// The compiler reads each weight through this interface, whatever its form is
// in a checkpoint (docs/adding-a-form.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_WEIGHTS_WEIGHTSOURCE_H
#define QWEN_WEIGHTS_WEIGHTSOURCE_H

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Support/Error.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The sizes of a weight, outermost dimension first. The last dimension of a
/// matrix is K; what is before it are outputs. A vector has an output for each
/// value.
struct WeightShape {
  std::vector<int64_t> sizes;

  int64_t outputs() const;
  int64_t k() const { return sizes.size() < 2 ? 1 : sizes.back(); }
  int64_t values() const { return outputs() * k(); }
  bool operator==(const WeightShape &) const = default;
};

/// "[96, 64]", for messages.
std::string shapeText(std::span<const int64_t> sizes);

class WeightSource;
/// The error of an output of `source`, or of any, that no format of integers
/// can hold.
Error refusal(const WeightSource &source, numerics::EncodeStatus status,
              int64_t output = 0);

/// Some of at most kPanelOutputs outputs that follow each other: bit i stands
/// for output i of them.
using OutputSet = uint32_t;

/// The `count` outputs from output `first` on, as a set of their own. `count`
/// is less than the bits of a set.
inline OutputSet someOf(OutputSet outputs, int64_t first, int64_t count) {
  return outputs >> first & ((OutputSet{1} << count) - 1);
}

/// The values of a weight. Several threads may read at the same time.
class WeightSource {
public:
  virtual ~WeightSource() = default;

  virtual const WeightShape &shape() const = 0;
  /// What messages call it: `DIR/model.safetensors: tensor "lm_head.weight"`.
  virtual ErrorText name() const = 0;
  /// What messages about an output call it.
  virtual ErrorText nameOf(int64_t /*output*/) const { return name(); }
  /// What the summary calls the form of its values: "BF16" or "Q4_K".
  virtual std::string_view form() const = 0;
  /// The bytes that reading all values reads.
  virtual uint64_t bytesToRead() const = 0;

  /// Reads the values of `count` outputs from `first` on, one output after
  /// another.
  virtual void read(int64_t first, int64_t count, float *values) const = 0;

  /// The type of the floats that read() gives as they are stored, if they are
  /// floats.
  virtual std::optional<StoredType> floatType() const { return std::nullopt; }

  /// The format of `--weights keep`: it holds all values, or is the nearest.
  virtual WeightFormat keptFormat() const { return WeightFormat::F32; }
  /// Whether keep() gives integers in a quantized keptFormat(). Otherwise
  /// values are encoded in that format.
  virtual bool hasIntegers() const { return true; }
  /// The outputs whose integers and scales `format` holds, of `count` outputs
  /// from `first` on.
  virtual OutputSet kept(WeightFormat format, int64_t first,
                         int64_t count) const;
  /// Puts the integers and scales of `outputs`, counted from `first`, into a
  /// panel, where output `first` is output `lane`. kept() has these outputs.
  /// Returns the errors of integers that a quantizer chose; others have none.
  virtual numerics::EncodeError keep(WeightFormat format, int64_t first,
                                     OutputSet outputs, int64_t lane,
                                     uint8_t *panel) const;
  /// The model's columns in the order in which keep() gives them and
  /// keptFormat() holds them; empty where it is the same. read() gives the
  /// model's order.
  virtual std::span<const int32_t> columnOrder() const { return {}; }
};

using WeightSourcePtr = std::shared_ptr<const WeightSource>;

/// A source over another one. It forwards every question: one that derives from
/// it overrides what it changes.
class ForwardingSource : public WeightSource {
public:
  const WeightShape &shape() const override { return source->shape(); }
  ErrorText name() const override { return source->name(); }
  ErrorText nameOf(int64_t output) const override {
    return source->nameOf(output);
  }
  std::string_view form() const override { return source->form(); }
  uint64_t bytesToRead() const override { return source->bytesToRead(); }
  void read(int64_t first, int64_t count, float *values) const override {
    source->read(first, count, values);
  }
  std::optional<StoredType> floatType() const override {
    return source->floatType();
  }
  WeightFormat keptFormat() const override { return source->keptFormat(); }
  bool hasIntegers() const override { return source->hasIntegers(); }
  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override {
    return source->kept(format, first, count);
  }
  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override {
    return source->keep(format, first, outputs, lane, panel);
  }
  std::span<const int32_t> columnOrder() const override {
    return source->columnOrder();
  }

protected:
  explicit ForwardingSource(WeightSourcePtr from) : source(std::move(from)) {}

  const WeightSourcePtr source;
};

/// A source that computes its values from another source: f32, which no file
/// stores and no integers give.
class ComputedSource : public ForwardingSource {
public:
  void read(int64_t first, int64_t count, float *values) const override = 0;
  std::optional<StoredType> floatType() const override { return std::nullopt; }
  WeightFormat keptFormat() const override { return WeightFormat::F32; }
  bool hasIntegers() const override { return false; }
  OutputSet kept(WeightFormat, int64_t, int64_t) const override { return 0; }
  std::span<const int32_t> columnOrder() const override { return {}; }

protected:
  using ForwardingSource::ForwardingSource;
};

/// The weights of a model by the names that its ops read.
class WeightSources {
public:
  struct Entry {
    WeightSourcePtr source;
    /// The names of the tensors of a checkpoint that it reads.
    std::vector<std::string> tensors;
  };

  /// Replaces a weight of this name. Entries of other names stay in place.
  void set(std::string name, Entry entry) {
    byName.insert_or_assign(std::move(name), std::move(entry));
  }
  /// The weight `name`, or null.
  const Entry *find(std::string_view name) const;

  const std::map<std::string, Entry, std::less<>> &all() const {
    return byName;
  }

private:
  std::map<std::string, Entry, std::less<>> byName;
};

} // namespace qwen

#endif // QWEN_WEIGHTS_WEIGHTSOURCE_H
