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
} // namespace

static constexpr auto kEntries = [] {
  using namespace formats;
  return std::to_array<Entry>({
#define QWEN_SCHEDULE(Op, Isa, Formats, M, ...)                                \
  {KernelOp::Op, KernelIsa::Isa, Formats, M, {__VA_ARGS__}},
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

/// What UnpackOnce.cpp has code for.
static bool unpacksOnce(KernelIsa isa) {
  const DotKind kind = isaInfo(isa).dot.kind;
  return kind == DotKind::Sdot || kind == DotKind::Smmla;
}

/// What StripDots.cpp has code for: a tile has two vectors, and a call several
/// tiles.
static bool hasStrips(const KernelInfo &kernel) {
  return isaInfo(kernel.isa).arch == Arch::X86_64 && kernel.m > 8;
}

LoopNest qwen::loopNest(const KernelInfo &kernel,
                        const KernelSchedule &schedule) {
  if (!isLinear(kernel.op))
    return LoopNest::Attention;
  if (kernel.op == KernelOp::LinearF32)
    return LoopNest::Chains;
  if (isaInfo(kernel.isa).dot.kind == DotKind::TileDot)
    return LoopNest::Amx;
  if (schedule.strip > 0 && hasStrips(kernel))
    return LoopNest::Strips;
  return schedule.strip > 0 && unpacksOnce(kernel.isa) ? LoopNest::UnpackOnce
                                                       : LoopNest::Dots;
}

KernelSchedule qwen::fixedSchedule(const KernelInfo &kernel,
                                   KernelSchedule schedule) {
  if (!isaInfo(kernel.isa).isScalable ||
      loopNest(kernel, schedule) != LoopNest::UnpackOnce)
    return schedule;
  KernelInfo fixed = kernel;
  fixed.isa = KernelIsa::NEONI8MM;
  const KernelSchedule &neon = scheduleOf(fixed);
  schedule.tokens = neon.tokens;
  schedule.vectors = neon.vectors;
  schedule.unroll = neon.unroll;
  return schedule;
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

static constexpr ScheduleField kFields[] = {
    {"tokens", &KernelSchedule::tokens},
    {"vectors", &KernelSchedule::vectors},
    {"unroll", &KernelSchedule::unroll},
    {"inTurn", &KernelSchedule::inTurn},
    {"prefetch", &KernelSchedule::prefetch},
    {"streams", &KernelSchedule::streams},
    {"strip", &KernelSchedule::strip},
    {"depth", &KernelSchedule::depth},
    {"panels", &KernelSchedule::panels},
    {"cached", &KernelSchedule::cached},
    {"reused", &KernelSchedule::reused},
};

std::span<const ScheduleField> qwen::scheduleFields() { return kFields; }

/// first, 2 * first, ... last.
static std::vector<int64_t> doubling(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t value = first; value <= last; value *= 2)
    values.push_back(value);
  return values;
}

static std::vector<int64_t> tokenChoices(const KernelInfo &kernel,
                                         LoopNest nest) {
  if (nest == LoopNest::Attention)
    return {1, 2, 3, 4, 5, 6, 7, 8};
  if (nest == LoopNest::Amx)
    return {0};
  std::vector<int64_t> values;
  const int64_t each = isaInfo(kernel.isa).dot.tokens;
  for (int64_t tokens = each; tokens <= kernel.m; tokens += each)
    if (kernel.m % tokens == 0)
      values.push_back(tokens);
  return values;
}

static std::vector<int64_t> stripChoices(const KernelInfo &kernel,
                                         LoopNest nest) {
  if (kernel.op == KernelOp::AttentionScores)
    return doubling(1, 256);
  if (nest == LoopNest::Amx)
    return doubling(kernel.m, 1024);
  std::vector<int64_t> values = {0};
  if (kernel.op == KernelOp::LinearQ8 &&
      (unpacksOnce(kernel.isa) || hasStrips(kernel)))
    for (int64_t strip = 8; strip <= 256; strip *= 2)
      if (strip % kernel.m == 0)
        values.push_back(strip);
  return values;
}

std::vector<int64_t> qwen::scheduleChoices(const KernelInfo &kernel,
                                           const KernelSchedule &schedule,
                                           const ScheduleField &field) {
  const LoopNest nest = loopNest(kernel, schedule);
  const auto is = [&](int64_t KernelSchedule::*value) {
    return field.value == value;
  };
  if (is(&KernelSchedule::tokens))
    return tokenChoices(kernel, nest);
  if (is(&KernelSchedule::strip))
    return stripChoices(kernel, nest);
  const int64_t widest = kPanelOutputs / isaInfo(kernel.isa).lanes;
  switch (nest) {
  case LoopNest::Attention:
    // At least half a panel, because heads are multiples of 8 values.
    if (is(&KernelSchedule::vectors))
      return doubling(std::max<int64_t>(widest / 2, 1), widest);
    if (is(&KernelSchedule::prefetch))
      return {0, 1};
    return {0};
  case LoopNest::Dots:
    if (is(&KernelSchedule::inTurn) && isaInfo(kernel.isa).dot.tokens == 1)
      return {0, 1};
    if (is(&KernelSchedule::prefetch))
      return {0, 1, 512, 1024, 2048, 4096, 8192};
    // A tile of several tokens may be two panels wide where a panel is one
    // vector.
    if (is(&KernelSchedule::vectors) && widest == 1 && kernel.m > 1)
      return {1, 2};
    if (is(&KernelSchedule::streams) && schedule.vectors <= widest)
      return {0, 2, 4, 8};
    [[fallthrough]];
  case LoopNest::UnpackOnce:
    if (is(&KernelSchedule::unroll))
      return doubling(1, kBlockGroups);
    [[fallthrough]];
  case LoopNest::Chains:
    if (is(&KernelSchedule::vectors))
      return doubling(1, widest);
    break;
  case LoopNest::Strips:
    if (is(&KernelSchedule::vectors))
      return {2};
    if (is(&KernelSchedule::unroll))
      return widest == 1 ? doubling(1, kBlockGroups) : doubling(1, 1);
    if (is(&KernelSchedule::prefetch))
      return {0, 1};
    [[fallthrough]];
  case LoopNest::Amx:
    if (is(&KernelSchedule::depth))
      return doubling(8, 128);
    break;
  }
  if (is(&KernelSchedule::panels))
    return doubling(1, 16);
  if (is(&KernelSchedule::cached))
    return doubling(8192, 4 << 20);
  if (is(&KernelSchedule::reused) &&
      (nest == LoopNest::Chains || nest == LoopNest::Dots ||
       nest == LoopNest::Strips))
    return doubling(8192, 4 << 20);
  return {0};
}

static std::string join(const std::vector<int64_t> &values) {
  std::string text;
  for (int64_t value : values)
    text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

void qwen::checkSchedule(const KernelInfo &kernel,
                         const KernelSchedule &schedule) {
  for (const ScheduleField &field : kFields) {
    const std::vector<int64_t> choices =
        scheduleChoices(kernel, schedule, field);
    const int64_t value = schedule.*field.value;
    if (std::ranges::find(choices, value) == choices.end())
      throw Error("schedule of kernel '" + std::string(kernel.name) + "' has " +
                  std::string(field.name) + "=" + std::to_string(value) +
                  "; it can be " + join(choices));
  }
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

KernelSchedule qwen::parseSchedule(KernelSchedule schedule,
                                   std::string_view text) {
  const std::string wrong = "schedule '" + std::string(text) +
                            "' is no list such as 'tokens=4,unroll=2'";
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      throw Error(wrong);
    const std::string_view name = item.substr(0, equals);
    const auto *field = std::ranges::find(kFields, name, &ScheduleField::name);
    if (field == std::end(kFields)) {
      std::string names;
      for (const ScheduleField &known : kFields)
        names += (names.empty() ? "" : " ") + std::string(known.name);
      throw Error("no field '" + std::string(name) +
                  "' in a schedule; there are " + names);
    }
    const char *end = item.data() + item.size();
    const auto [stop, error] =
        std::from_chars(item.data() + equals + 1, end, schedule.*field->value);
    if (error != std::errc() || stop != end)
      throw Error(wrong);
    if (comma == text.size())
      return schedule;
    text.remove_prefix(comma + 1);
  }
}

KernelSchedule qwen::changedSchedule(const KernelInfo &kernel,
                                     std::string_view text) {
  KernelSchedule schedule = scheduleOf(kernel);
  if (!text.empty())
    schedule = parseSchedule(schedule, text);
  checkSchedule(kernel, schedule);
  return schedule;
}

std::string qwen::printSchedule(const KernelInfo &kernel,
                                const KernelSchedule &schedule) {
  std::string text;
  for (const ScheduleField &field : kFields)
    text += std::string(field.name) + " = " +
            std::to_string(schedule.*field.value) + " of " +
            join(scheduleChoices(kernel, schedule, field)) + "\n";
  return text;
}
