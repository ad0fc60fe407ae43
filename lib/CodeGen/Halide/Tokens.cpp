//===- Tokens.cpp - Kernels over the activations of a token ---------------===//

#include "Expressions.h"
#include "HalideKernels.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <limits>

using namespace qwen;
using namespace qwen::halide;
using Halide::cast;
using Halide::Expr;
using Halide::Float;
using Halide::Func;
using Halide::ImageParam;
using Halide::Param;
using Halide::RDom;
using Halide::reinterpret;
using Halide::TailStrategy;
using Halide::UInt;
using Halide::Var;

static constexpr int kGroupSize = static_cast<int>(kGroup);
static constexpr int kGroupsPerBlock = static_cast<int>(kBlockGroups);

namespace {
/// Activations in groups of 32: (i in group, group).
struct GroupedValues {
  explicit GroupedValues(const char *name) : values(Float(32), 2, name) {
    values.dim(0).set_bounds(0, kGroupSize);
    values.dim(1).set_min(0).set_stride(kGroupSize);
  }
  ImageParam values;
};
} // namespace

/// 1 / sqrt(mean of squares + eps) of a token; NaN where the sum of squares
/// overflows, so that a check behind meets it.
static Func rootMeanSquare(const GroupedValues &x, const Expr &groups,
                           const Expr &eps, int width) {
  Var j("j");
  Func squares("squares"), scale("scale");
  // Term i goes to lane i mod 16, in ascending order.
  RDom r(0, kGroupSize / kLanes, 0, groups);
  const Expr value = x.values(r.x * kLanes + j, r.y);
  squares(j) = 0.0f;
  squares(j) += value * value;
  const Expr mean = combineLanes([&](int lane) { return squares(lane); }, add) /
                    cast<float>(groups * kGroupSize);
  const Expr inverse = 1.0f / Halide::sqrt(mean + eps);
  scale() = Halide::select(inverse > 0.0f, inverse,
                           std::numeric_limits<float>::quiet_NaN());

  squares.compute_root();
  scheduleLanes(squares, j, width);
  scale.compute_root().store_in(Halide::MemoryType::Stack);
  return scale;
}

/// The largest |value| of a block, as f32; computed for each `block` that
/// `user` takes.
static Func amaxOfBlock(const Func &value, const Expr &groups, const Func &user,
                        const Var &block, int width) {
  Var j("j");
  Func lanes("lanes"), amax("amax");
  // The last block may be short: it sees its last group more than once.
  RDom r(0, kGroupSize / kLanes, 0, kGroupsPerBlock);
  const Expr group = Halide::min(block * kGroupsPerBlock + r.y, groups - 1);
  lanes(j, block) = 0;
  lanes(j, block) = Halide::max(lanes(j, block),
                                magnitudeBits(value(r.x * kLanes + j, group)));
  amax(block) = reinterpret<float>(
      combineLanes([&](int lane) { return lanes(lane, block); }, larger));

  lanes.compute_at(user, block).bound_extent(block, 1);
  scheduleLanes(lanes, j, width);
  lanes.update().unroll(r.x);
  amax.compute_at(user, block)
      .bound_extent(block, 1)
      .store_in(Halide::MemoryType::Stack);
  return amax;
}

/// Quantizes value(i, group) to blocks of 128: outputs q, d, sums and the flag.
static std::vector<Func> quantize(const Func &value, const Expr &groups,
                                  int width) {
  Var i("i"), group("group"), block("block"), inner("inner");
  Func q("q"), d("d"), sums("sums"), flag("flag");
  const auto unlessTiny = [](const Expr &amax, const Expr &x) {
    return Halide::select(amax < 0x1p-100f, 0.0f, x);
  };

  // d and q find the same amax, each for itself: the second pass over a block
  // costs less than it would to keep amax.
  const Expr amax = amaxOfBlock(value, groups, d, block, width)(block);
  d(block) = unlessTiny(amax, amax / 127.0f);

  const Func amaxAgain = amaxOfBlock(value, groups, q, block, width);
  Func inverse("inverse");
  inverse(block) = unlessTiny(amaxAgain(block), 127.0f / amaxAgain(block));
  const Expr rounded =
      Halide::round(value(i, group) * inverse(group / kGroupsPerBlock));
  // Comparisons written so that a NaN, which is flagged, ends in range.
  const Expr low = Halide::select(rounded < 127.0f, rounded, 127.0f);
  const Expr clamped = Halide::select(low > -127.0f, low, -127.0f);
  q(i, group) = cast<int8_t>(cast<int32_t>(clamped));

  Func sum("sum");
  RDom r(0, kGroupSize);
  sum(group) = 0;
  sum(group) += cast<int32_t>(q(r, group));
  sums(group) = sum(group);

  // amax, and with it d, is finite where every value is.
  RDom blocks(0, (groups + kGroupsPerBlock - 1) / kGroupsPerBlock);
  Func seen("seen");
  seen() = 0;
  seen() = seen() | isNotFinite(magnitudeBits(d(blocks)));
  flag() = seen();

  q.output_buffer().dim(0).set_bounds(0, kGroupSize);
  q.output_buffer().dim(1).set_bounds(0, groups).set_stride(kGroupSize);
  d.output_buffer().dim(0).set_bounds(0, (groups + kGroupsPerBlock - 1) /
                                             kGroupsPerBlock);
  sums.output_buffer().dim(0).set_bounds(0, groups);

  d.compute_root();
  q.compute_root()
      .split(group, block, inner, kGroupsPerBlock, TailStrategy::GuardWithIf)
      .vectorize(i, kLanes)
      .unroll(i);
  inverse.compute_at(q, block).bound_extent(block, 1).store_in(
      Halide::MemoryType::Stack);
  sum.compute_at(sums, group).store_in(Halide::MemoryType::Stack);
  sum.update().atomic().vectorize(r, kGroupSize);
  seen.compute_root().store_in(Halide::MemoryType::Stack);
  return {q, d, sums, flag};
}

static Kernel embedFloats(WeightFormat format) {
  // One output of a panel. Codes of 16 bits are the upper halves of f32.
  const bool bf16 = codingOf(format).bits == 16;
  ImageParam panel(bf16 ? UInt(16) : Float(32), 1, "panel");
  Var i("i");
  Func out("out");
  out(i) = bf16 ? reinterpret<float>(cast<uint32_t>(panel(i)) << 16) : panel(i);

  panel.dim(0).set_min(0).set_stride(static_cast<int>(kPanelOutputs));
  out.output_buffer().dim(0).set_min(0);
  out.unroll(i, kLanes, TailStrategy::RoundUp);
  return {{panel}, {out}};
}

/// The integer of a code.
static Expr integerOf(const CodingInfo &coding, const Expr &code) {
  if (coding.bits == 8)
    return cast<int32_t>(reinterpret<int8_t>(code));
  if (!coding.hasCodebook())
    return code - static_cast<int>(coding.bias);
  return Halide::mux(code, std::vector<Expr>(std::begin(coding.codebook),
                                             std::end(coding.codebook)));
}

/// `bits` bits of a byte from bit `from` on.
static Expr bitsOf(const Expr &byte, const Expr &from, int bits) {
  return cast<int32_t>((byte >> from) & ((1 << bits) - 1));
}

/// Number `number` of sub-block `j` in block `block`, whose row r is
/// rows(r, block).
static Expr subInteger(WeightFormat format, const ImageParam &rows, int number,
                       const Expr &j, const Expr &block) {
  const ScaleInfo &scales = scalesOf(format);
  const int first =
      number * static_cast<int>(panelSubScaleBytes(format) / kPanelOutputs);
  const auto row = [&](const Expr &r) { return rows(first + r, block); };
  if (scales.subBits == 8)
    return cast<int32_t>(reinterpret<int8_t>(row(j)));
  const Expr lower = bitsOf(row(j / 2), j % 2 * 4, 4);
  const Expr upper = bitsOf(row(4 + j / 4), j % 4 * 2, 2);
  return (lower | upper << 4) - static_cast<int>(scales.subBias);
}

static Kernel embedIntegers(WeightFormat format) {
  // One output of a panel (Blocks.h): the f16 numbers of each block, a scale
  // and where it has one the minimum or zero point; rows of the integers of
  // sub-blocks; and
  // byte `b` of chunk `c` of each group `g` of each block. Part `h` of a byte
  // has the lowest bits of value 4 * (c + h * chunks) + b of the group.
  const CodingInfo &coding = codingOf(format);
  const ScaleInfo &scales = scalesOf(format);
  const int chunks = codeField(coding.bits, 0).bits, parts = 8 / chunks;
  const int groupsPerBlock = static_cast<int>(weightBlock(format) / kGroup);
  ImageParam numbers(UInt(16), 2, "numbers");
  ImageParam rows(UInt(8), 2, "rows");
  ImageParam bytes(UInt(8), 4, "bytes");
  Var b("b"), c("c"), h("h"), group("group");
  Func out("out");
  const Expr block = group / groupsPerBlock, inBlock = group % groupsPerBlock;
  const auto byte = [&](const Expr &chunk) {
    return bytes(b, chunk, inBlock, block);
  };
  const Expr step = c + chunks * h;
  Expr code = byte(c);
  if (parts > 1)
    code = bitsOf(code, chunks * h, chunks);
  for (int i = 1; i < codeFields(coding.bits); ++i) {
    const CodeField field = codeField(coding.bits, i);
    const CodePlace place = field.placeOf(step);
    code = code | bitsOf(byte(place.chunk), place.from, field.bits)
                      << field.first;
  }
  const auto number = [&](int i) {
    Expr value = cast<float>(reinterpret<Halide::float16_t>(numbers(i, block)));
    if (!scales.hasSubBlocks())
      return value;
    const int subBlock = static_cast<int>(scales.subBlock);
    const Expr j = (inBlock * kGroupSize + 4 * step) / subBlock;
    return cast<float>(subInteger(format, rows, i, j, block)) * value;
  };
  Expr integer = cast<float>(integerOf(coding, code));
  if (scales.hasZero)
    integer = integer - number(1);
  const Expr scaled = integer * number(0);
  out(b, c, h, group) = scales.hasMinimum() ? scaled + number(1) : scaled;

  const int blockBytes = static_cast<int>(panelBlockBytes(format));
  numbers.dim(0).set_min(0).set_stride(static_cast<int>(kPanelOutputs));
  numbers.dim(1).set_min(0).set_stride(blockBytes / 2);
  rows.dim(0).set_min(0).set_stride(static_cast<int>(kPanelOutputs));
  rows.dim(1).set_min(0).set_stride(blockBytes);
  bytes.dim(0).set_bounds(0, 4);
  bytes.dim(1)
      .set_bounds(0, static_cast<int>(coding.bits))
      .set_stride(static_cast<int>(4 * kPanelOutputs));
  bytes.dim(2)
      .set_bounds(0, groupsPerBlock)
      .set_stride(static_cast<int>(panelGroupBytes(format)));
  bytes.dim(3).set_min(0).set_stride(blockBytes);
  out.output_buffer().dim(0).set_bounds(0, 4);
  out.output_buffer().dim(1).set_bounds(0, chunks).set_stride(4);
  out.output_buffer().dim(2).set_bounds(0, parts).set_stride(4 * chunks);
  out.output_buffer().dim(3).set_min(0).set_stride(kGroupSize);
  out.reorder(b, h, c, group).vectorize(b).unroll(h).unroll(c);
  if (scales.hasSubBlocks())
    return {{numbers, rows, bytes}, {out}};
  return {{numbers, bytes}, {out}};
}

Kernel halide::embed(const KernelInfo &kernel) {
  const WeightFormat format = *weightFormat(kernel.format);
  return isQuantized(format) ? embedIntegers(format) : embedFloats(format);
}

Kernel halide::ropeTable(const KernelInfo &) {
  Param<int32_t> position("position");
  ImageParam frequencies(Float(32), 1, "frequencies");
  Var i("i");
  Func table("table");
  const SinCos value = sinCos(cast<float>(position) * frequencies(i));
  table(i) = Halide::Tuple(value.cos, value.sin);

  frequencies.dim(0).set_min(0);
  // The second output has the bounds of the first.
  table.output_buffers()[0].dim(0).set_min(0);
  // Half a head is a multiple of four.
  table.vectorize(i, 4, TailStrategy::RoundUp);
  return {{position, frequencies}, {table}};
}

namespace {
/// The inputs of an RMSNorm and its value of element (i, group).
struct NormedValues {
  NormedValues(const Var &i, const Var &group, int width) {
    const Func scale = rootMeanSquare(x, groups, eps, width);
    value(i, group) = (x.values(i, group) * scale()) * w.values(i, group);
  }
  std::vector<Halide::Argument> arguments() const {
    return {x.values, w.values, groups, eps};
  }
  const GroupedValues x{"x"}, w{"w"};
  const Param<int32_t> groups{"groups"};
  const Param<float> eps{"eps"};
  Func value{"value"};
};
} // namespace

Kernel halide::rmsNormF32(const KernelInfo &kernel) {
  Var i("i"), group("group");
  const NormedValues normed(i, group, widthOf(kernel));
  Func y = normed.value;
  y.output_buffer().dim(0).set_bounds(0, kGroupSize);
  y.output_buffer().dim(1).set_min(0).set_stride(kGroupSize);
  y.vectorize(i, widthOf(kernel)).unroll(i);
  return {normed.arguments(), {y}};
}

Kernel halide::rmsNormQ8(const KernelInfo &kernel) {
  Var i("i"), group("group");
  const NormedValues normed(i, group, widthOf(kernel));
  return {normed.arguments(),
          quantize(normed.value, normed.groups, widthOf(kernel))};
}

Kernel halide::quantizeQ8(const KernelInfo &kernel) {
  const GroupedValues x("x");
  Param<int32_t> groups("groups");
  Var i("i"), group("group");
  Func value("value");
  value(i, group) = x.values(i, group);
  return {{x.values, groups}, quantize(value, groups, widthOf(kernel))};
}

Kernel halide::swiGluF32(const KernelInfo &kernel) {
  ImageParam gate(Float(32), 1, "gate"), up(Float(32), 1, "up");
  Var i("i");
  Func y("y");
  y(i) = silu(gate(i)) * up(i);

  gate.dim(0).set_min(0);
  up.dim(0).set_min(0);
  y.output_buffer().dim(0).set_min(0);
  scheduleElements(y, i, widthOf(kernel), TailStrategy::RoundUp);
  return {{gate, up}, {y}};
}

Kernel halide::swiGluQ8(const KernelInfo &kernel) {
  const GroupedValues gate("gate"), up("up");
  Param<int32_t> groups("groups");
  Var i("i"), group("group");
  Func reduced("reduced"), value("value");
  const ReducedPower power = reduceAnyPower(-gate.values(i, group));
  reduced(i, group) = {power.r, power.scale};
  value(i, group) = silu(gate.values(i, group),
                         {reduced(i, group)[0], reduced(i, group)[1]}) *
                    up.values(i, group);

  // The values are computed once and kept. Up to four vectors at once and in
  // two halves, as softmax's.
  const int together = std::min(4 * widthOf(kernel), kGroupSize);
  value.compute_root()
      .bound_storage(group, static_cast<int>(kStackValues / kGroup))
      .store_in(Halide::MemoryType::Stack)
      .vectorize(i, together)
      .unroll(i);
  reduced.compute_at(value, i)
      .store_in(Halide::MemoryType::Stack)
      .bound_extent(i, together)
      .vectorize(i);
  return {{gate.values, up.values, groups},
          quantize(value, groups, widthOf(kernel))};
}

Kernel halide::checkFinite(const KernelInfo &kernel) {
  ImageParam x(Float(32), 1, "x");
  Param<int32_t> n("n");
  Var j("j");
  Func lanes("lanes"), flag("flag");
  RDom r(0, n / kLanes), tail(n / kLanes * kLanes, n % kLanes);
  lanes(j) = 0;
  lanes(j) = Halide::max(lanes(j), magnitudeBits(x(r * kLanes + j)));
  Func rest("rest");
  rest() = combineLanes([&](int lane) { return lanes(lane); }, larger);
  rest() = Halide::max(rest(), magnitudeBits(x(tail)));
  flag() = isNotFinite(rest());

  x.dim(0).set_min(0);
  lanes.compute_root();
  scheduleLanes(lanes, j, widthOf(kernel));
  rest.compute_root().store_in(Halide::MemoryType::Stack);
  return {{x, n}, {flag}};
}
