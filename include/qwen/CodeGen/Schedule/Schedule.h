//===- Schedule.h - Schedules of the products -------------------*- C++ -*-===//
//
// Schedules.def has a schedule for each kernel with provider MLIR: the order of
// its loops, and the numbers that this order has. A schedule changes the speed
// of a product and never its result (docs/numerics.md), so bench/tune.py can
// search for the best one.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
#define QWEN_CODEGEN_SCHEDULE_SCHEDULE_H

#include "qwen/ABI/DriverABI.h"
#include "qwen/ABI/KernelTable.h"

#include <string>
#include <variant>
#include <vector>

namespace qwen {

/// The orders of Orders.def.
enum class Order : uint8_t {
#define QWEN_ORDER(Name) Name,
#include "qwen/CodeGen/Schedule/Orders.def"
};

// A struct for each order, with the fields that its loops read. Fields of one
// name mean the same in all orders:
//
// tokens    Tokens of a tile, which divide the kernel's M. AMX: tokens that are
//           multiplied together, in one or two tiles of M.
// vectors   Vectors of outputs in a tile. A scalable vector counts as 128 bits;
//           a panel has fewer vectors if they are longer.
// unroll    Groups of 32 along K in one pass of the innermost loop.
// prefetch  Prefetch distance in bytes; 0 if the processor's own prefetcher
//           suffices. 1: each tile prefetches its share of the panels, or of
//           the page, that are read next, and the outputs that it stores.
// streams   Number of distant places in the panels of a call that the loops
//           read in turn, one group of weights each: a core reads several
//           streams faster than one (docs/notebook/decode-bandwidth.md). 0: the
//           loops read the panels in order.
// strip     Tokens that share one unpacking of the weights.
// depth     Groups of 32 along K that are unpacked at once, or whose integers
//           of sub-blocks are.
// panels    Panels of 16 outputs that share the arranging of activations. AMX:
//           that are multiplied together.
// bypass    Outputs of a call that has more than so many bytes of them bypass
//           the caches, which they would only pass through; 0: no call's do.
// least     Tokens from which the kernel is faster than the kernels of older
//           instruction sets, which multiply fewer tokens.
// rest      Tokens behind a multiple of `tokens` from which the kernel is
//           faster than those kernels.

/// The orders of attention.
template <Order> struct PageSchedule {
  /// Queries of a tile.
  int64_t tokens = 1;
  int64_t vectors = 1;
  int64_t prefetch = 0;
  /// Scores: the queries of several tokens that a thread processes together,
  /// with their state in the L1 cache. Values: 0.
  int64_t strip = 0;
  bool operator==(const PageSchedule &) const = default;
};
using PageChainsSchedule = PageSchedule<Order::PageChains>;
using PageDotsSchedule = PageSchedule<Order::PageDots>;

struct ChainsSchedule {
  int64_t tokens = 1;
  int64_t vectors = 1;
  bool operator==(const ChainsSchedule &) const = default;
};

struct GroupDotsSchedule {
  int64_t tokens = 1;
  int64_t vectors = 1;
  int64_t unroll = 1;
  /// 1: one vector of outputs after the other processes a group, with the
  /// fewest sums in registers. 0: all vectors process each activation together.
  int64_t inTurn = 0;
  int64_t prefetch = 0;
  int64_t streams = 0;
  bool operator==(const GroupDotsSchedule &) const = default;
};

struct PairDotsSchedule {
  int64_t tokens = 2;
  int64_t vectors = 1;
  int64_t unroll = 1;
  int64_t prefetch = 0;
  int64_t streams = 0;
  bool operator==(const PairDotsSchedule &) const = default;
};

struct HeldDotsSchedule {
  int64_t tokens = 1;
  int64_t vectors = 1;
  int64_t unroll = 1;
  int64_t prefetch = 0;
  int64_t streams = 0;
  bool operator==(const HeldDotsSchedule &) const = default;
};

/// A tile has two vectors of outputs.
struct StripDotsSchedule {
  int64_t tokens = 1;
  int64_t unroll = 1;
  int64_t prefetch = 1;
  int64_t strip = 64;
  int64_t depth = 16;
  bool operator==(const StripDotsSchedule &) const = default;
};

/// A tile has two vectors of outputs.
struct BlockDotsSchedule {
  int64_t tokens = 1;
  int64_t prefetch = 1;
  int64_t strip = 64;
  int64_t depth = 16;
  bool operator==(const BlockDotsSchedule &) const = default;
};

struct UnpackOnceSchedule {
  int64_t tokens = 1;
  int64_t vectors = 1;
  int64_t unroll = 1;
  int64_t strip = 64;
  int64_t panels = 4;
  bool operator==(const UnpackOnceSchedule &) const = default;
};

/// The orders of AMX.
template <Order> struct TileTurnsSchedule {
  int64_t tokens = 16;
  int64_t strip = 512;
  int64_t depth = 8;
  int64_t panels = 2;
  int64_t bypass = 0;
  int64_t least = 16;
  int64_t rest = 8;
  bool operator==(const TileTurnsSchedule &) const = default;
};
using TileGroupsSchedule = TileTurnsSchedule<Order::TileGroups>;
using TileBlocksSchedule = TileTurnsSchedule<Order::TileBlocks>;
using TilePlanesSchedule = TileTurnsSchedule<Order::TilePlanes>;

/// The panels and tokens of a call of a product; zeros in attention.
struct CallSizes {
  /// Bytes of the panels of a call, counted as int8, which stay in a core's
  /// cache for the kernels for other numbers of tokens
  /// (docs/decisions/0006-small-batches.md).
  int64_t cached = 0;
  /// Bytes of the activations of a call, counted as int8, which stay in a
  /// core's cache while one panel after the other reads them. 0: a call has all
  /// tokens, because its loops hold some of them themselves.
  int64_t reused = 0;
  bool operator==(const CallSizes &) const = default;
};

/// The alternative Order::X is XSchedule.
using OrderSchedule =
    std::variant<PageChainsSchedule, PageDotsSchedule, ChainsSchedule,
                 GroupDotsSchedule, PairDotsSchedule, HeldDotsSchedule,
                 StripDotsSchedule, BlockDotsSchedule, UnpackOnceSchedule,
                 TileGroupsSchedule, TileBlocksSchedule, TilePlanesSchedule>;
#define QWEN_ORDER(Name)                                                       \
  static_assert(                                                               \
      std::is_same_v<std::variant_alternative_t<                               \
                         static_cast<size_t>(Order::Name), OrderSchedule>,     \
                     Name##Schedule>);
#include "qwen/CodeGen/Schedule/Orders.def"

/// A row of Schedules.def.
struct KernelSchedule {
  OrderSchedule loops;
  CallSizes calls;

  Order order() const { return static_cast<Order>(loops.index()); }
  bool operator==(const KernelSchedule &) const = default;
};

/// The schedule of a kernel whose provider is MLIR.
const KernelSchedule &scheduleOf(const KernelInfo &kernel);

/// The tokens that a kernel should multiply.
TokenTiles tokenTiles(const KernelInfo &kernel);

/// The schedule of `kernel` for vectors of 128 bits. SVE kernels use NEON's
/// code there, and so the tile and unroll of NEON's kernel; for other kernels
/// it is `schedule`.
UnpackOnceSchedule fixedSchedule(const KernelInfo &kernel,
                                 UnpackOnceSchedule schedule);

/// Throws Error, naming kernel, field and choices, unless the order and every
/// field of `schedule` is one of its choices.
void checkSchedule(const KernelInfo &kernel, const KernelSchedule &schedule);

/// The kernel's schedule with the changes of `text`, such as
/// "tokens=4,unroll=2", which may be empty. "order=GroupDots" changes the
/// order: a field that both orders have keeps its value if the new order allows
/// it, and every other field gets its least choice. Throws Error for an unknown
/// field, an invalid number, and like checkSchedule.
KernelSchedule changedSchedule(const KernelInfo &kernel, std::string_view text);

/// A line for the order and each field of it, with their choices:
/// "unroll = 4 of 1 2 4".
std::string printSchedule(const KernelInfo &kernel,
                          const KernelSchedule &schedule);

} // namespace qwen

#endif // QWEN_CODEGEN_SCHEDULE_SCHEDULE_H
