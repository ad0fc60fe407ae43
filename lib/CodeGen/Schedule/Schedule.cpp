//===- Schedule.cpp - Schedules of the products ---------------------------===//

#include "qwen/CodeGen/Schedule/Schedule.h"
#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {
/// A line of Schedules.def.
struct Entry {
  KernelOp op;
  KernelIsa isa;
  FormatSet formats;
  int64_t m;
  KernelSchedule schedule;
};

/// A field of schedules beside the order.
struct ScheduleField {
  std::string_view name;
  /// The address of the field; null if the order has none of this name.
  int64_t *(*in)(KernelSchedule &schedule);
  /// Its valid values with the other fields of `schedule`, in ascending order.
  std::vector<int64_t> (*choices)(const KernelInfo &kernel,
                                  const KernelSchedule &schedule);
};
} // namespace

static constexpr auto kEntries = [] {
  using namespace formats;
  return std::to_array<Entry>({
#define QWEN_SCHEDULE(Op, Isa, Formats, M, Order, Cached, Reused, ...)         \
  {KernelOp::Op,                                                               \
   KernelIsa::Isa,                                                             \
   Formats,                                                                    \
   M,                                                                          \
   {Order##Schedule{__VA_ARGS__}, {Cached, Reused}}},
#include "qwen/CodeGen/Schedule/Schedules.def"
  });
}();

static constexpr bool isFor(const Entry &entry, const KernelInfo &kernel) {
  return entry.op == kernel.op && entry.isa == kernel.isa &&
         entry.m == kernel.m && (entry.formats & setOf(kernel.format)) != 0;
}

/// Whether each kernel of MLIR has one schedule and each schedule has a kernel.
static constexpr bool isComplete() {
  constexpr KernelInfo kernels[] = {
#define QWEN_KERNEL(Stem, Op, Format, M, Isa)                                  \
  {#Stem, KernelOp::Op, KernelFormat::Format, M, KernelIsa::Isa},
#include "qwen/ABI/Kernels.def"
  };
  // Plain loops, which take the fewest of Clang's steps.
  bool used[kEntries.size()] = {};
  for (const KernelInfo &kernel : kernels) {
    int found = 0;
    for (size_t i = 0; i < kEntries.size(); ++i)
      if (isFor(kEntries[i], kernel)) {
        used[i] = true;
        ++found;
      }
    if (found != (kernel.provider() == KernelProvider::MLIR))
      return false;
  }
  for (const bool entry : used)
    if (!entry)
      return false;
  return true;
}
static_assert(
    isComplete(),
    "Schedules.def lacks a kernel, has one twice or one that is not there");

const KernelSchedule &qwen::scheduleOf(const KernelInfo &kernel) {
  for (const Entry &entry : kEntries)
    if (isFor(entry, kernel))
      return entry.schedule;
  throw std::logic_error("no schedule for kernel '" + std::string(kernel.name) +
                         "'");
}

TokenTiles qwen::tokenTiles(const KernelInfo &kernel) {
  const TokenTiles whole = {.multiple = Tokens(kernel.m),
                            .least = Tokens(kernel.m)};
  if (kernel.provider() != KernelProvider::MLIR)
    return whole;
  return std::visit(
      [&](const auto &loops) {
        if constexpr (requires { loops.rest; })
          return TokenTiles{LayoutId(int64_t(isaInfo(kernel.isa).dot.layout)),
                            Tokens(loops.tokens), Tokens(loops.least),
                            Tokens(loops.rest)};
        else
          return whole;
      },
      scheduleOf(kernel).loops);
}

UnpackOnceSchedule qwen::fixedSchedule(const KernelInfo &kernel,
                                       UnpackOnceSchedule schedule) {
  if (!isaInfo(kernel.isa).isScalable)
    return schedule;
  KernelInfo fixed = kernel;
  fixed.isa = KernelIsa::NEONI8MM;
  const auto &neon = std::get<UnpackOnceSchedule>(scheduleOf(fixed).loops);
  schedule.tokens = neon.tokens;
  schedule.vectors = neon.vectors;
  schedule.unroll = neon.unroll;
  return schedule;
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

static constexpr std::string_view kOrderNames[] = {
#define QWEN_ORDER(Name) #Name,
#include "qwen/CodeGen/Schedule/Orders.def"
};

static std::string_view nameOf(Order order) {
  return kOrderNames[static_cast<size_t>(order)];
}

/// The orders that a kernel has code for.
static std::vector<Order> ordersOf(const KernelInfo &kernel) {
  if (!isLinear(kernel.op))
    return {kvFormat(kernel.format) &&
                    !layoutOf(*kvFormat(kernel.format)).isFloat()
                ? Order::PageDots
                : Order::PageChains};
  if (kernel.op == KernelOp::LinearF32)
    return {Order::Chains};
  const bool isPrompt = kernel.m > 8;
  const bool hasSubBlocks =
      scalesOf(*weightFormat(kernel.format)).hasSubBlocks();
  std::vector<Order> orders = {Order::GroupDots};
  switch (isaInfo(kernel.isa).dot.kind) {
  case DotKind::TileDot:
    return {hasSubBlocks ? Order::TilePlanes
            : weightBlock(*weightFormat(kernel.format)) == kActivationBlock
                ? Order::TileBlocks
                : Order::TileGroups};
  case DotKind::Smmla:
    return {Order::PairDots, Order::UnpackOnce};
  case DotKind::Sdot:
    return {Order::GroupDots, Order::UnpackOnce};
  case DotKind::Maddubs:
    orders.push_back(Order::HeldDots);
    [[fallthrough]];
  case DotKind::Vpdpbusd:
    if (isPrompt)
      orders.push_back(Order::StripDots);
    if (isPrompt && hasSubBlocks && kernel.isa == KernelIsa::AVX512VNNI)
      orders.push_back(Order::BlockDots);
    return orders;
  default:
    return orders;
  }
}

/// first, 2 * first, ... last.
static std::vector<int64_t> doubling(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t value = first; value <= last; value *= 2)
    values.push_back(value);
  return values;
}

/// The vectors of a panel.
static int64_t panelVectors(const KernelInfo &kernel) {
  return kPanelOutputs / isaInfo(kernel.isa).lanes;
}

/// Whether the schedule is one of attention, whose tiles are of queries and of
/// a page.
static bool isOfPages(const KernelSchedule &schedule) {
  return schedule.order() == Order::PageChains ||
         schedule.order() == Order::PageDots;
}

static std::vector<int64_t> tokenChoices(const KernelInfo &kernel,
                                         const KernelSchedule &schedule) {
  if (isOfPages(schedule))
    return {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};
  if (isaInfo(kernel.isa).dot.kind == DotKind::TileDot)
    return {schedule.order() == Order::TileGroups ? kernel.m : 2 * kernel.m};
  std::vector<int64_t> values;
  const int64_t each = isaInfo(kernel.isa).dot.tokens;
  for (int64_t tokens = each; tokens <= kernel.m; tokens += each)
    if (kernel.m % tokens == 0)
      values.push_back(tokens);
  return values;
}

static std::vector<int64_t> vectorChoices(const KernelInfo &kernel,
                                          const KernelSchedule &schedule) {
  const int64_t widest = panelVectors(kernel);
  // At least half a panel, because heads are multiples of 8 values.
  if (schedule.order() == Order::PageChains)
    return doubling(std::max<int64_t>(widest / 2, 1), widest);
  if (schedule.order() == Order::PageDots)
    return doubling(1, kPageTokens / isaInfo(kernel.isa).lanes);
  // A tile of several tokens may be two panels wide where a panel is one
  // vector.
  if (schedule.order() == Order::GroupDots && widest == 1 && kernel.m > 1)
    return {1, 2};
  return doubling(1, widest);
}

static std::vector<int64_t> unrollChoices(const KernelInfo &kernel,
                                          const KernelSchedule &schedule) {
  const bool isShort =
      schedule.order() == Order::StripDots && panelVectors(kernel) > 1;
  return doubling(1, isShort ? 1 : kBlockGroups);
}

static std::vector<int64_t> turnChoices(const KernelInfo &,
                                        const KernelSchedule &) {
  return {0, 1};
}

static std::vector<int64_t> prefetchChoices(const KernelInfo &,
                                            const KernelSchedule &schedule) {
  switch (schedule.order()) {
  case Order::PageChains:
  case Order::PageDots:
  case Order::StripDots:
  case Order::BlockDots:
    return {0, 1};
  default:
    return {0, 1, 512, 1024, 2048, 4096, 8192};
  }
}

/// Tiles that are two panels wide have no streams.
static std::vector<int64_t> streamChoices(const KernelInfo &kernel,
                                          const KernelSchedule &schedule) {
  const auto *loops = std::get_if<GroupDotsSchedule>(&schedule.loops);
  if (loops && loops->vectors > panelVectors(kernel))
    return {0};
  return {0, 2, 4, 8};
}

static std::vector<int64_t> stripChoices(const KernelInfo &kernel,
                                         const KernelSchedule &) {
  if (kernel.op == KernelOp::AttentionValues)
    return {0};
  if (kernel.op == KernelOp::AttentionScores)
    return doubling(1, 256);
  // Two tiles of tokens; sums of more tokens would leave the second cache.
  if (isaInfo(kernel.isa).dot.kind == DotKind::TileDot)
    return doubling(2 * kernel.m, 512);
  std::vector<int64_t> values = doubling(8, 256);
  std::erase_if(values, [&](int64_t strip) { return strip % kernel.m != 0; });
  return values;
}

static std::vector<int64_t> depthChoices(const KernelInfo &,
                                         const KernelSchedule &) {
  return doubling(8, 128);
}

static std::vector<int64_t> panelChoices(const KernelInfo &,
                                         const KernelSchedule &) {
  return doubling(1, 16);
}

static std::vector<int64_t> bypassChoices(const KernelInfo &,
                                          const KernelSchedule &) {
  std::vector<int64_t> values = doubling(1 << 20, 16 << 20);
  values.insert(values.begin(), 0);
  return values;
}

static std::vector<int64_t> leastChoices(const KernelInfo &kernel,
                                         const KernelSchedule &) {
  return doubling(kernel.m, 64);
}

static std::vector<int64_t> restChoices(const KernelInfo &kernel,
                                        const KernelSchedule &schedule) {
  std::vector<int64_t> values;
  for (int64_t rest = 1; rest <= tokenChoices(kernel, schedule).back(); ++rest)
    values.push_back(rest);
  return values;
}

static std::vector<int64_t> cachedChoices(const KernelInfo &,
                                          const KernelSchedule &) {
  return doubling(8192, 16 << 20);
}

static std::vector<int64_t> reusedChoices(const KernelInfo &kernel,
                                          const KernelSchedule &schedule) {
  if (schedule.order() == Order::UnpackOnce ||
      isaInfo(kernel.isa).dot.kind == DotKind::TileDot)
    return {0};
  return doubling(8192, 4 << 20);
}

/// A field of the orders whose struct has this member.
#define QWEN_FIELD(Name, Choices)                                              \
  {#Name,                                                                      \
   [](KernelSchedule &schedule) {                                              \
     return std::visit(                                                        \
         [](auto &loops) -> int64_t * {                                        \
           if constexpr (requires { loops.Name; })                             \
             return &loops.Name;                                               \
           else                                                                \
             return nullptr;                                                   \
         },                                                                    \
         schedule.loops);                                                      \
   },                                                                          \
   Choices}
/// A field of all products with a matrix.
#define QWEN_CALL_FIELD(Name, Choices)                                         \
  {#Name,                                                                      \
   [](KernelSchedule &schedule) -> int64_t * {                                 \
     return isOfPages(schedule) ? nullptr : &schedule.calls.Name;              \
   },                                                                          \
   Choices}
static constexpr ScheduleField kFields[] = {
    QWEN_FIELD(tokens, tokenChoices),
    QWEN_FIELD(vectors, vectorChoices),
    QWEN_FIELD(unroll, unrollChoices),
    QWEN_FIELD(inTurn, turnChoices),
    QWEN_FIELD(prefetch, prefetchChoices),
    QWEN_FIELD(streams, streamChoices),
    QWEN_FIELD(strip, stripChoices),
    QWEN_FIELD(depth, depthChoices),
    QWEN_FIELD(panels, panelChoices),
    QWEN_FIELD(bypass, bypassChoices),
    QWEN_FIELD(least, leastChoices),
    QWEN_FIELD(rest, restChoices),
    QWEN_CALL_FIELD(cached, cachedChoices),
    QWEN_CALL_FIELD(reused, reusedChoices),
};
#undef QWEN_FIELD
#undef QWEN_CALL_FIELD

static std::string join(const auto &values, auto &&toText) {
  std::string text;
  for (const auto &value : values)
    text += (text.empty() ? "" : " ") + std::string(toText(value));
  return text;
}
static std::string join(const std::vector<int64_t> &values) {
  return join(values, [](int64_t value) { return std::to_string(value); });
}
static std::string join(const std::vector<Order> &orders) {
  return join(orders, nameOf);
}

[[noreturn]] static void refuse(const KernelInfo &kernel, std::string_view name,
                                std::string_view value,
                                const std::string &choices) {
  throw Error("schedule of kernel '" + std::string(kernel.name) + "' has " +
              std::string(name) + "=" + std::string(value) + "; it can be " +
              choices);
}

static void checkOrder(const KernelInfo &kernel, std::string_view name) {
  const std::vector<Order> orders = ordersOf(kernel);
  if (std::ranges::find(orders, name, nameOf) == orders.end())
    refuse(kernel, "order", name, join(orders));
}

void qwen::checkSchedule(const KernelInfo &kernel,
                         const KernelSchedule &schedule) {
  checkOrder(kernel, nameOf(schedule.order()));
  KernelSchedule copy = schedule;
  for (const ScheduleField &field : kFields)
    if (const int64_t *value = field.in(copy)) {
      const std::vector<int64_t> choices = field.choices(kernel, schedule);
      if (std::ranges::find(choices, *value) == choices.end())
        refuse(kernel, field.name, std::to_string(*value), join(choices));
    }
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The schedule of another order: fields that both have keep their values as
/// far as these are choices, others have their least choices.
static KernelSchedule withOrder(const KernelInfo &kernel, KernelSchedule from,
                                std::string_view name) {
  checkOrder(kernel, name);
  KernelSchedule to = from;
#define QWEN_ORDER(Name)                                                       \
  if (name == #Name)                                                           \
    to.loops = Name##Schedule();
#include "qwen/CodeGen/Schedule/Orders.def"
  for (const ScheduleField &field : kFields)
    if (int64_t *value = field.in(to)) {
      const int64_t *before = field.in(from);
      const std::vector<int64_t> choices = field.choices(kernel, to);
      const bool isKept =
          before && std::ranges::find(choices, *before) != choices.end();
      *value = isKept ? *before : choices.front();
    }
  return to;
}

/// Sets the field `name`; false if `text` is no number.
static bool setField(KernelSchedule &schedule, std::string_view name,
                     std::string_view text) {
  const auto *field = std::ranges::find(kFields, name, &ScheduleField::name);
  int64_t *value = field == std::end(kFields) ? nullptr : field->in(schedule);
  if (!value) {
    std::string names = "order";
    for (const ScheduleField &known : kFields)
      if (known.in(schedule))
        names += " " + std::string(known.name);
    throw Error("no field '" + std::string(name) + "' in a schedule of " +
                std::string(nameOf(schedule.order())) + "; there are " + names);
  }
  const char *first = text.data(), *end = first + text.size();
  const auto [stop, error] = std::from_chars(first, end, *value);
  return error == std::errc() && stop == end;
}

KernelSchedule qwen::changedSchedule(const KernelInfo &kernel,
                                     std::string_view text) {
  KernelSchedule schedule = scheduleOf(kernel);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals),
                           value =
                               item.substr(std::min(equals + 1, item.size()));
    bool isValid = equals < item.size() && comma + 1 != rest.size();
    if (isValid && name == "order")
      schedule = withOrder(kernel, schedule, value);
    else if (isValid)
      isValid = setField(schedule, name, value);
    if (!isValid)
      throw Error("schedule '" + std::string(text) +
                  "' is no list such as 'tokens=4,unroll=2'");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  checkSchedule(kernel, schedule);
  return schedule;
}

std::string qwen::printSchedule(const KernelInfo &kernel,
                                const KernelSchedule &schedule) {
  std::string text = "order = " + std::string(nameOf(schedule.order())) +
                     " of " + join(ordersOf(kernel)) + "\n";
  KernelSchedule copy = schedule;
  for (const ScheduleField &field : kFields)
    if (const int64_t *value = field.in(copy))
      text += std::string(field.name) + " = " + std::to_string(*value) +
              " of " + join(field.choices(kernel, schedule)) + "\n";
  return text;
}
