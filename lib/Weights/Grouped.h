//===- Grouped.h - Integers in groups of columns ----------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_GROUPED_H
#define QWEN_LIB_WEIGHTS_GROUPED_H

#include "qwen/Weights/Forms.h"

#include <mutex>

namespace qwen {

/// How a code q of some bits becomes a value, with the scale s of its group.
enum class GroupRule : uint8_t {
  /// (q - 2^(bits - 1)) s
  Symmetric,
  /// (q - z) s, with the zero point z of the group
  Zero,
  /// q s + m, with the minimum m of the group
  Minimum,
};

/// The codes of a matrix of K columns. `group` divides K.
struct Grouping {
  /// At most 8.
  int bits;
  /// Columns of a group.
  int64_t group;
  GroupRule rule;

  /// The zero point of Symmetric.
  int middle() const { return 1 << (bits - 1); }
};

/// A matrix of codes, with a scale for each group of columns of an output. It
/// keeps its codes in a format of the image with its rule, its bits, and blocks
/// that divide its groups; several blocks then have the same scale. Without
/// such a format, or if f16 does not hold a scale, a minimum or a zero point,
/// its values are encoded in q8_0.
class GroupedSource : public WeightSource {
public:
  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return text; }
  std::string_view form() const override { return formName; }
  uint64_t bytesToRead() const override { return totalBytes; }
  void read(int64_t first, int64_t count, float *values) const override;
  WeightFormat keptFormat() const override;
  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override;
  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override;
  /// Empty also where groups are scattered and have no whole blocks in any
  /// order; then it keeps no codes.
  std::span<const int32_t> columnOrder() const override {
    return columns().order;
  }
  /// The columns of a group that follow each other, or 0 if they are scattered.
  int64_t group() const { return columns().scattered ? 0 : grouping.group; }

protected:
  /// `named` gives the weight its name in errors; `form`, with the bits, is its
  /// name in the summary. Its tensors have `bytes` bytes.
  GroupedSource(const StoredTensor &named, std::string_view form,
                WeightShape shape, uint64_t bytes, Grouping grouping);
  /// A matrix with the codes of `source`: `change` is added to its form, and
  /// `bytes` to the bytes to read.
  GroupedSource(const GroupedSource &source, GroupRule rule,
                std::string_view change, uint64_t bytes);

  /// The codes of `count` outputs from `first` on, K each, 0 to 2^bits - 1.
  /// `count` is at most kPanelOutputs.
  virtual void readCodes(int64_t first, int64_t count,
                         uint8_t *codes) const = 0;
  /// Their scales, and their zero points or minimums, [count][K / group]. No
  /// offsets for Symmetric.
  virtual void readNumbers(int64_t first, int64_t count, float *scales,
                           float *offsets) const = 0;
  /// The group of each column, where that is not column / group.
  virtual std::span<const int32_t> groups() const { return {}; }

  const Grouping grouping;

private:
  /// Reads the codes and numbers of another one.
  friend class ShiftedSource;

  /// Where the columns of a group lie.
  struct Columns {
    /// Whether the columns of some group are not contiguous.
    bool scattered = false;
    /// The columns sorted by group, if each group has as many.
    std::vector<int32_t> order;
  };
  /// Numbers of some outputs, by group.
  struct Numbers;

  const Columns &columns() const;
  Columns findColumns() const;
  Numbers numbersOf(int64_t first, int64_t count) const;
  int64_t groupCount() const { return sizes.k() / grouping.group; }

  const ErrorText text;
  const std::string formName;
  const WeightShape sizes;
  const uint64_t totalBytes;
  mutable std::once_flag once;
  mutable Columns found;
};

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_GROUPED_H
