//===- Schedule.h - Schedules of the products -------------------*- C++ -*-===//
//
// Schedules.def has a schedule for each kernel with provider MLIR. A schedule
// changes the speed of a product and never its result (docs/numerics.md), so
// bench/tune.py can search for the best one.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
#define QWEN_CODEGEN_SCHEDULE_SCHEDULE_H

#include "qwen/ABI/KernelTable.h"

#include <string>
#include <vector>

namespace qwen {

/// A field that the loops of a kernel do not read is 0.
struct KernelSchedule {
  /// Tokens (in attention: queries) of a tile. Divides the kernel's M.
  int64_t tokens = 0;
  /// Vectors of outputs in a tile. A scalable vector counts as 128 bits; a
  /// panel has fewer vectors if they are longer.
  int64_t vectors = 0;
  /// Groups of 32 along K in one pass of the innermost loop.
  int64_t unroll = 0;
  /// 1: one vector of outputs after the other processes a group, with the
  /// fewest sums in registers. 0: all vectors process each activation together.
  int64_t inTurn = 0;
  /// Prefetch distance in bytes; 0 if the processor's own prefetcher suffices.
  /// 1: each tile prefetches its share of the panels, or in attention of the
  /// page, that are read next, and the outputs that it stores.
  int64_t prefetch = 0;
  /// Number of distant places in the panels of a call that the loops read in
  /// turn, one group of weights each: a core reads several streams faster than
  /// one (docs/notebook/decode-bandwidth.md). 0: the loops read the panels in
  /// order.
  int64_t streams = 0;
  /// Tokens that share one unpacking of the weights; 0 if each tile unpacks
  /// them. In attention: queries of several tokens that a thread processes
  /// together, with their state in the L1 cache.
  int64_t strip = 0;
  /// Groups of 32 along K that are unpacked at once, or whose integers of
  /// sub-blocks are, if the kernel has a choice.
  int64_t depth = 0;
  /// Panels of 16 outputs that share a transformation of the activations. A
  /// call has at least as many.
  int64_t panels = 0;
  /// Bytes of the panels of a call, counted as int8, which stay in a core's
  /// cache for the kernels for other numbers of tokens
  /// (docs/decisions/0006-small-batches.md).
  int64_t cached = 0;
  /// Bytes of the activations of a call, counted as int8, which stay in a
  /// core's cache while one panel after the other reads them. 0: a call has all
  /// tokens, because its loops hold some of them themselves.
  int64_t reused = 0;

  bool operator==(const KernelSchedule &) const = default;
};

/// The loop nests of kernels with a schedule.
enum class LoopNest : uint8_t {
  /// Attention.cpp.
  Attention,
  /// Chains.cpp: sums of floats.
  Chains,
  /// GroupDots.cpp, PairDots.cpp, HeldOrder.cpp: each tile unpacks weights.
  Dots,
  /// StripDots.cpp, BlockOrder.cpp: tiles of a strip of tokens share unpacked
  /// weights.
  Strips,
  /// UnpackOnce.cpp: likewise, with a block of weights at a time.
  UnpackOnce,
  /// Amx.cpp.
  Amx,
};

LoopNest loopNest(const KernelInfo &kernel, const KernelSchedule &schedule);

/// The schedule of a kernel whose provider is MLIR.
const KernelSchedule &scheduleOf(const KernelInfo &kernel);

/// The schedule of `kernel` for vectors of 128 bits. SVE kernels with the loops
/// UnpackOnce use NEON's code there, and so the tile and unroll of NEON's
/// kernel; for other kernels it is `schedule`.
KernelSchedule fixedSchedule(const KernelInfo &kernel, KernelSchedule schedule);

struct ScheduleField {
  std::string_view name;
  int64_t KernelSchedule::*value;
};

/// The fields of a schedule, in the order of Schedules.def.
std::span<const ScheduleField> scheduleFields();

/// The valid values of `field` in `kernel` with the other fields of `schedule`,
/// in ascending order: the search space of the tuner and the limits of
/// checkSchedule. Only 0 if the loops do not read the field.
std::vector<int64_t> scheduleChoices(const KernelInfo &kernel,
                                     const KernelSchedule &schedule,
                                     const ScheduleField &field);

/// Throws Error, naming kernel, field and choices, unless every field of
/// `schedule` is one of its choices.
void checkSchedule(const KernelInfo &kernel, const KernelSchedule &schedule);

/// `schedule` with the fields of `text`, such as "tokens=4,unroll=2". Throws
/// Error for an unknown field or an invalid number. Does not check the result.
KernelSchedule parseSchedule(KernelSchedule schedule, std::string_view text);

/// The kernel's schedule with the fields of `text`, which may be empty. Throws
/// Error like parseSchedule and checkSchedule.
KernelSchedule changedSchedule(const KernelInfo &kernel, std::string_view text);

/// A line for each field of a kernel, with its choices: "unroll = 4 of 1 2 4".
std::string printSchedule(const KernelInfo &kernel,
                          const KernelSchedule &schedule);

} // namespace qwen

#endif // QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
