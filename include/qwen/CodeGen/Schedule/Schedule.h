//===- Schedule.h - How the code of products is arranged --------*- C++ -*-===//
//
// Schedules.def expanded: for each row of the kernel table that MLIR makes, the
// numbers that its code is made with. They decide how fast a product is and
// never what it computes (docs/numerics.md), so that they may be searched
// (bench/tune.py).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
#define QWEN_CODEGEN_SCHEDULE_SCHEDULE_H

#include "qwen/ABI/KernelTable.h"

#include <string>
#include <vector>

namespace qwen {

/// A field that the loops of a row do not read is 0.
struct KernelSchedule {
  /// Tokens (of attention, query heads) of the tile whose sums are in
  /// registers. Divides the row's M.
  int64_t tokens = 0;
  /// Vectors of outputs of that tile. Scalable ones count for 128 bits each;
  /// where they are longer, a panel has fewer.
  int64_t vectors = 0;
  /// Groups of 32 along K in one pass of the innermost loop.
  int64_t unroll = 0;
  /// 1 where the tile's vectors of outputs take a group one after the other,
  /// which has the fewest sums in registers; 0 where each activation is taken
  /// to all of them at once.
  int64_t inTurn = 0;
  /// Bytes ahead of the weights in use that are fetched; 0 where the processor
  /// does as well by itself. Of attention: 1 where the steps of a page fetch
  /// what is read next.
  int64_t prefetch = 0;
  /// Parts, far from each other, of the panels of a call that its loops read in
  /// turn, a group of weights each: memory serves a core several streams faster
  /// than one (docs/notebook/decode-bandwidth.md). 0 where panels follow each
  /// other.
  int64_t streams = 0;
  /// Tokens for which weights are unpacked once; 0 where each tile does so. Of
  /// attention: rows (query heads of several tokens) that a thread takes at
  /// once, whose state is in a core's first cache.
  int64_t chunk = 0;
  /// Groups of 32 along K that are unpacked at once, where that may be chosen.
  int64_t depth = 0;
  /// Panels of 16 outputs that share what is done to the activations. A call
  /// has at least as many.
  int64_t panels = 0;
  /// Bytes, as int8, of the panels of a call, which rows for other numbers of
  /// tokens find in a core's cache (docs/decisions/0006-small-batches.md).
  int64_t cached = 0;

  bool operator==(const KernelSchedule &) const = default;
};

/// The loops that a row with a schedule has.
enum class LoopNest : uint8_t {
  /// ProductsAttention.cpp.
  Attention,
  /// ProductsLinear.cpp, of floats and of integers.
  Chains,
  Dots,
  /// ProductsBlocked.cpp.
  Blocks,
  /// ProductsAmx.cpp.
  Tiles,
};

LoopNest loopNest(const KernelInfo &row, const KernelSchedule &schedule);

/// The schedule of a row whose provider is MLIR.
const KernelSchedule &scheduleOf(const KernelInfo &row);

/// What `row` with `schedule` does where vectors have 128 bits. Rows of SVE
/// whose loops are Blocks have NEON's code there, so also the tile and unroll
/// of NEON's row; others do the same as with longer vectors.
KernelSchedule fixedSchedule(const KernelInfo &row, KernelSchedule schedule);

struct ScheduleField {
  std::string_view name;
  int64_t KernelSchedule::*value;
};

/// The fields of a schedule, in the order of Schedules.def.
std::span<const ScheduleField> scheduleFields();

/// What `field` may be in `row` beside the other fields of `schedule`, in
/// ascending order: the tuner's space and checkSchedule's limits. 0 alone where
/// the loops do not read it.
std::vector<int64_t> scheduleChoices(const KernelInfo &row,
                                     const KernelSchedule &schedule,
                                     const ScheduleField &field);

/// Throws Error, naming row, field and choices, unless every field of
/// `schedule` is one of its choices.
void checkSchedule(const KernelInfo &row, const KernelSchedule &schedule);

/// `schedule` with the fields that `text` gives, as "tokens=4,unroll=2". Throws
/// Error for what is no field or no number. The result is not checked.
KernelSchedule parseSchedule(KernelSchedule schedule, std::string_view text);

/// The row's schedule with the changes that `text` makes (parseSchedule), or
/// none where it is empty; checked (checkSchedule).
KernelSchedule changedSchedule(const KernelInfo &row, std::string_view text);

/// A line for each field of a row, with its choices: "unroll = 4 of 1 2 4".
std::string printSchedule(const KernelInfo &row,
                          const KernelSchedule &schedule);

} // namespace qwen

#endif // QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
