//===- SourcesTest.cpp - Where the values of weights come from ------------===//

#include "qwen/Weights/Sources.h"

#include "FormTensors.h"
#include "GgmlBlocks.h"
#include "NumericsRandom.h"
#include "TempDir.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Weights/Forms.h"
#include "qwen/Weights/Owned.h"
#include "qwen/Weights/Transposed.h"
#include "qwen/Weights/Turned.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

using namespace qwen;
using namespace qwen::test;

/// A tensor of the file "d/f" with these bytes, which must live longer.
template <typename T>
static StoredTensor makeTensor(std::vector<int64_t> shape, StoredType type,
                               const std::vector<T> &values) {
  StoredTensor tensor;
  tensor.name = "t";
  tensor.path = "d/f";
  tensor.type = type;
  tensor.shape = std::move(shape);
  tensor.bytes = {reinterpret_cast<const uint8_t *>(values.data()),
                  values.size() * sizeof(T)};
  return tensor;
}

static WeightSourcePtr make(const StoredTensor &tensor) {
  const WeightSources sources = makeSources({{"m.weight", tensor}});
  const WeightSources::Entry *entry = sources.find("m.weight");
  return entry ? entry->source : nullptr;
}

TEST(Sources, ReadFloats) {
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0, 0x3800, 0, 0};
  const WeightSourcePtr source =
      make(makeTensor({2, 3}, StoredType::F16, halves));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->name().line(), "d/f: tensor \"t\"");
  EXPECT_EQ(source->form(), "F16");
  EXPECT_EQ(source->keptFormat(), WeightFormat::F32);
  EXPECT_EQ(source->bytesToRead(), 12u);
  EXPECT_EQ(source->shape().outputs(), 2);
  EXPECT_EQ(source->shape().k(), 3);
  EXPECT_EQ(valuesOf(*source), (std::vector<float>{1, -2, 0, 0.5, 0, 0}));
  float second[3];
  source->read(1, 1, second);
  EXPECT_EQ(second[0], 0.5f);
  EXPECT_EQ(source->kept(WeightFormat::F32, 0, 2), 0u);
  EXPECT_TRUE(source->columnOrder().empty());
}

TEST(Sources, HaveOutputsInAllShapes) {
  EXPECT_EQ(WeightShape{{}}.values(), 1);
  EXPECT_EQ(WeightShape{{7}}.outputs(), 7);
  EXPECT_EQ(WeightShape{{7}}.k(), 1);
  EXPECT_EQ((WeightShape{{4, 6, 8}}.outputs()), 24);
  EXPECT_EQ((WeightShape{{4, 6, 8}}.k()), 8);
  EXPECT_EQ(shapeText(WeightShape{{4, 6}}.sizes), "[4, 6]");
}

TEST(Sources, GiveRowsOfStackedTensors) {
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  const WeightSourcePtr stacked =
      make(makeTensor({3, 4, 2}, StoredType::F32, values));
  const WeightSourcePtr slice = makeOutputs(stacked, outputsFrom(4, 4));
  EXPECT_EQ(slice->shape(), (WeightShape{{4, 2}}));
  EXPECT_EQ(slice->bytesToRead(), 32u);
  EXPECT_EQ(valuesOf(*slice),
            (std::vector<float>{8, 9, 10, 11, 12, 13, 14, 15}));
  // Not in order, and rows of rows.
  const WeightSourcePtr rows = makeOutputs(slice, {3, 0, 1});
  EXPECT_EQ(valuesOf(*rows), (std::vector<float>{14, 15, 8, 9, 10, 11}));
  EXPECT_EQ(rows->name().line(), stacked->name().line());
  const std::vector<float> vector = {1, 2, 3};
  const WeightSourcePtr part =
      makeOutputs(make(makeTensor({3}, StoredType::F32, vector)), {2, 1});
  EXPECT_EQ(part->shape(), WeightShape{{2}});
  EXPECT_EQ(valuesOf(*part), (std::vector<float>{3, 2}));
}

TEST(Sources, MapValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0, 1, -inf};
  const WeightSourcePtr source = make(makeTensor({3}, StoredType::F32, values));
  EXPECT_EQ(valuesOf(*makeMapped(source, ValueMap::PlusOne)),
            (std::vector<float>{1, 2, -inf}));
  EXPECT_EQ(valuesOf(*makeMapped(source, ValueMap::Negate)),
            (std::vector<float>{0, -1, -inf}));
  // The exponential of an infinite number would be finite.
  EXPECT_EQ(valuesOf(*makeMapped(source, ValueMap::Exp)),
            (std::vector<float>{1, numerics::exp(1), -inf}));
}

/// A row of a matrix with a rotation of each block.
static std::vector<double> turned(std::vector<double> row, int64_t block) {
  const numerics::Rotation rotation(block);
  for (size_t i = 0; i < row.size(); i += static_cast<size_t>(block))
    rotation.turn(row.data() + i);
  return row;
}

TEST(Sources, TurnColumnsAndScaleThem) {
  constexpr int64_t outputs = 3, k = 96;
  const std::vector<float> values = Random(5).values(outputs * k);
  const std::vector<float> norm = Random(6).values(k);
  const WeightSourcePtr source =
      make(makeTensor({outputs, k}, StoredType::F32, values));
  const WeightSourcePtr scales = make(makeTensor({k}, StoredType::F32, norm));
  const WeightSourcePtr all = makeTurned(
      source, {scales, /*columns=*/32, /*hadamard=*/false, /*outputs=*/0});
  EXPECT_EQ(all->shape(), source->shape());
  EXPECT_EQ(all->form(), "F32");
  EXPECT_EQ(all->keptFormat(), WeightFormat::F32);
  EXPECT_EQ(all->kept(WeightFormat::Q8_0, 0, 3), 0u);
  std::vector<float> found(2 * k);
  all->read(1, 2, found.data());
  for (size_t i = 0; i < 2; ++i) {
    std::vector<double> row(k);
    for (size_t j = 0; j < k; ++j)
      row[j] = double{values[(i + 1) * k + j]} * norm[j];
    row = turned(row, 32);
    for (size_t j = 0; j < k; ++j)
      ASSERT_EQ(found[i * k + j], static_cast<float>(row[j]));
  }
}

TEST(Sources, TurnOutputs) {
  // More columns than are turned together, and a rest.
  constexpr size_t outputs = 96, k = 160;
  const std::vector<float> values =
      Random(7).values(static_cast<int64_t>(outputs * k));
  const WeightSourcePtr both =
      makeTurned(make(makeTensor({outputs, k}, StoredType::F32, values)),
                 {nullptr, /*columns=*/80, /*hadamard=*/false, /*outputs=*/48});
  std::vector<std::vector<double>> rows;
  rows.reserve(outputs);
  for (size_t i = 0; i < outputs; ++i)
    rows.push_back(turned({values.begin() + static_cast<int64_t>(i * k),
                           values.begin() + static_cast<int64_t>((i + 1) * k)},
                          80));
  // Several threads may be the first to read.
  std::vector<float> found(outputs * k);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < outputs; i += 32)
      threads.emplace_back(
          [&, i] { both->read(static_cast<int64_t>(i), 32, &found[i * k]); });
  }
  for (size_t j = 0; j < k; ++j) {
    std::vector<double> column;
    column.reserve(outputs);
    for (const std::vector<double> &row : rows)
      column.push_back(row[j]);
    column = turned(column, 48);
    for (size_t i = 0; i < outputs; ++i)
      ASSERT_EQ(found[i * k + j], static_cast<float>(column[i]));
  }
  // A bias.
  const std::vector<float> bias = Random(8).values(32);
  const std::vector<double> needed = turned({bias.begin(), bias.end()}, 16);
  EXPECT_EQ(valuesOf(*makeTurned(
                make(makeTensor({32}, StoredType::F32, bias)),
                {nullptr, /*columns=*/0, /*hadamard=*/false, /*outputs=*/16})),
            std::vector<float>(needed.begin(), needed.end()));
}

TEST(Sources, UndoTheHadamardTransform) {
  // Blocks of 128, and 64 and 32 of the last one; outputs are turned as well.
  constexpr int64_t outputs = 32, k = 224;
  const WeightSourcePtr source = [] {
    static const std::vector<float> values = Random(9).values(outputs * k);
    return make(makeTensor({outputs, k}, StoredType::F32, values));
  }();
  const std::vector<float> x = Random(10).values(k);
  std::vector<float> transformed(k);
  numerics::hadamard(x.data(), k, transformed.data());
  const auto product = [&](const WeightSource &weights,
                           const std::vector<float> &input) {
    const std::vector<float> values = valuesOf(weights);
    std::vector<double> y(outputs);
    for (size_t i = 0; i < values.size(); ++i)
      y[i / k] += double{values[i]} * input[i % k];
    return y;
  };
  const std::vector<double> plain = product(*source, x);
  const std::vector<double> turnedPlain = turned(plain, outputs);
  const std::vector<double> undone =
      product(*makeTurned(source, {nullptr, 0, true, 0}), transformed);
  const std::vector<double> both =
      product(*makeTurned(source, {nullptr, 0, true, outputs}), transformed);
  for (size_t i = 0; i < outputs; ++i) {
    EXPECT_NEAR(undone[i], plain[i], 1e-5);
    EXPECT_NEAR(both[i], turnedPlain[i], 1e-5);
  }
}

TEST(Sources, GiveRotationsAndOnes) {
  const numerics::Rotation rotation(96);
  const std::vector<float> values = valuesOf(*makeRotation(96));
  ASSERT_EQ(values.size(), 99u);
  EXPECT_EQ(values[7], rotation.signs()[7]);
  EXPECT_EQ(values[98], static_cast<float>(rotation.factor()[2]));
  EXPECT_EQ(valuesOf(*makeOnes(3)), (std::vector<float>{1, 1, 1}));
}

TEST(Sources, GiveFrequenciesOfEachAxis) {
  std::vector<float> one;
  for (int64_t i = 0; i < 18; ++i)
    one.push_back(numerics::ropeInvFreq(1e4, i, 36));
  EXPECT_EQ(valuesOf(*makeFrequencies(1e4, {}, 18)), one);
  std::vector<float> two = one;
  two.insert(two.end(), one.begin(), one.end());
  EXPECT_EQ(valuesOf(*makeFrequencies(1e4, {}, 36, 2)), two);
}

TEST(Sources, KeepBlocks) {
  const std::vector<float> x = Random(1).values(192);
  std::vector<BlockQ4_0> blocks(6);
  for (size_t i = 0; i < blocks.size(); ++i)
    encodeQ4_0(&x[i * 32], blocks[i]);
  const WeightSourcePtr source =
      make(makeTensor({3, 64}, StoredType::Q4_0, blocks));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->form(), "Q4_0");
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q4_0);
  EXPECT_EQ(source->kept(WeightFormat::Q4_0, 0, 3), 7u);
  EXPECT_EQ(source->kept(WeightFormat::Q4_K, 0, 3), 0u);
  // A vector has no whole blocks.
  EXPECT_FALSE(make(makeTensor({192}, StoredType::Q4_0, blocks)));

  // A scale that is not finite.
  blocks[2].d = 0x7c00;
  EXPECT_EQ(source->kept(WeightFormat::Q4_0, 0, 3), 5u);
  const WeightSourcePtr rows = makeOutputs(source, {2, 1, 0});
  EXPECT_EQ(rows->keptFormat(), WeightFormat::Q4_0);
  EXPECT_EQ(rows->kept(WeightFormat::Q4_0, 0, 3), 5u);
  EXPECT_EQ(rows->kept(WeightFormat::Q4_0, 1, 2), 2u);

  const auto bytes = static_cast<size_t>(panelBytes(WeightFormat::Q4_0, 64));
  std::vector<uint8_t> want(bytes), got(bytes);
  numerics::keepOutput(WeightFormat::Q4_0, StoredType::Q4_0,
                       reinterpret_cast<const uint8_t *>(&blocks[4]), 64, 7,
                       want.data());
  numerics::keepOutput(WeightFormat::Q4_0, StoredType::Q4_0,
                       reinterpret_cast<const uint8_t *>(&blocks[0]), 64, 9,
                       want.data());
  rows->keep(WeightFormat::Q4_0, 0, 5, 7, got.data());
  EXPECT_EQ(got, want);
}

TEST(Sources, TakeTensorsByModule) {
  const std::vector<float> values = {1, 2};
  const StoredTensor tensor = makeTensor({2}, StoredType::F32, values);
  StoredTensor other = tensor;
  other.type = std::nullopt;
  const WeightSources sources = makeSources({{"a.weight", tensor},
                                             {"a.bias", tensor},
                                             {"a.A_log", tensor},
                                             {"odd", tensor},
                                             {"b.weight", other}});
  ASSERT_EQ(sources.all().size(), 4u);
  for (const char *name : {"a.weight", "a.bias", "a.A_log", "odd"}) {
    ASSERT_TRUE(sources.find(name)) << name;
    EXPECT_EQ(sources.find(name)->tensors, std::vector<std::string>{name});
  }
}

//===----------------------------------------------------------------------===//
// Owned
//===----------------------------------------------------------------------===//

TEST(Owned, HoldsFloats) {
  for (const Place place : {Place::Memory, Place::TemporaryFile}) {
    Owned owned("rotated", {{3, 2}}, place);
    EXPECT_EQ(valuesOf(owned), std::vector<float>(6));
    const float values[] = {1, 2, 3, 4};
    owned.set(1, 2, values);
    EXPECT_EQ(valuesOf(owned), (std::vector<float>{0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(owned.keptFormat(), WeightFormat::F32);
    EXPECT_EQ(owned.kept(WeightFormat::Q4_0, 0, 3), 0u);
    EXPECT_EQ(owned.bytesToRead(), 24u);
    EXPECT_EQ(owned.name().line(), "rotated");
  }
}

TEST(Owned, RefusesWhatHasNoRoom) {
  const std::string message = test::messageOf([] {
    const Owned owned("big", {{int64_t{1} << 40, int64_t{1} << 18}},
                      Place::Memory);
  });
  EXPECT_EQ(message, "big needs 1152921504606846976 bytes: Cannot allocate "
                     "memory");
}

namespace {
struct Rule {
  WeightFormat format;
  numerics::EncodeStatus (*encode)(const float *, int64_t,
                                   numerics::WeightBlock &);
};
} // namespace

static constexpr Rule kRules[] = {
    {WeightFormat::Q4_0, numerics::encode<numerics::Encoder::Signed4>},
    {WeightFormat::Q5_0, numerics::encode<numerics::Encoder::Signed5>},
    {WeightFormat::Q8_0, numerics::encode<numerics::Encoder::Absolute8>},
    {WeightFormat::Q4_Z_64, numerics::encode<numerics::Encoder::Zero4>},
    {WeightFormat::Q6_K, numerics::encode<numerics::Encoder::Search6>},
    {WeightFormat::Q5_K, numerics::encode<numerics::Encoder::Ranges5>},
    {WeightFormat::NL4_XS, numerics::encode<numerics::Encoder::Codebook4Sub>},
};

TEST(Owned, HoldsIntegersOfEachKind) {
  // The last block is shorter.
  constexpr int64_t kOutputs = 20, kK = 352;
  const std::vector<float> x = Random(2).values(kOutputs * kK);
  for (const auto &[format, encode] : kRules) {
    Owned owned("quantized", {{kOutputs, kK}}, Place::TemporaryFile, format);
    for (int64_t output = 0; output < kOutputs; ++output) {
      std::vector<numerics::WeightBlock> blocks;
      for (int64_t i = 0; i < kK; i += weightBlock(format)) {
        blocks.emplace_back();
        ASSERT_EQ(encode(&x[static_cast<size_t>(output * kK + i)],
                         std::min(weightBlock(format), kK - i), blocks.back()),
                  numerics::EncodeStatus::Ok);
      }
      owned.set(output, blocks);
    }
    EXPECT_EQ(owned.keptFormat(), format);
    EXPECT_EQ(owned.form(), weightFormatName(format));
    EXPECT_EQ(owned.kept(format, 3, 16), 0xffffu);
    EXPECT_EQ(owned.kept(WeightFormat::F32, 3, 16), 0u);

    // Outputs 10 to 17, but for 12, become 3 and those behind it.
    const float *outputs[kPanelOutputs] = {};
    for (int64_t i = 0; i < 8; ++i)
      outputs[3 + i] = &x[static_cast<size_t>((10 + i) * kK)];
    outputs[5] = nullptr;
    const float *none[kPanelOutputs] = {};
    const auto bytes = static_cast<size_t>(panelBytes(format, kK));
    std::vector<uint8_t> want(bytes), got(bytes);
    numerics::packPanel(format, outputs, kK, want.data());
    numerics::packPanel(format, none, kK, got.data());
    owned.keep(format, 10, 0xfb, 3, got.data());
    EXPECT_EQ(got, want) << weightFormatName(format);

    std::vector<float> value(kK), read(kK);
    numerics::reference<KernelOp::Embed>(kernelFormat(format))(
        want.data(), 10, kK, value.data());
    owned.read(17, 1, read.data());
    EXPECT_EQ(read, value) << weightFormatName(format);
  }
}

//===----------------------------------------------------------------------===//
// Matrices of experts
//===----------------------------------------------------------------------===//

/// The outputs of `source` from each place on, by 1 to all that are left.
static void expectOutputs(const WeightSource &source,
                          const std::vector<float> &values) {
  const int64_t outputs = source.shape().outputs(), k = source.shape().k();
  ASSERT_EQ(outputs * k, std::ssize(values));
  for (int64_t first = 0; first < outputs; ++first)
    for (int64_t count = 1; count <= outputs - first; ++count) {
      std::vector<float> some(static_cast<size_t>(count * k));
      source.read(first, count, some.data());
      EXPECT_TRUE(
          std::equal(some.begin(), some.end(), values.begin() + first * k));
    }
}

TEST(Experts, AreStackedAndSliced) {
  std::vector<std::vector<float>> matrices;
  std::vector<WeightSourcePtr> sources;
  std::vector<float> all, slices;
  for (float first : {0.0f, 100.0f, 200.0f}) {
    std::vector<float> &matrix = matrices.emplace_back();
    for (int i = 0; i < 8; ++i)
      matrix.push_back(first + static_cast<float>(i));
    all.insert(all.end(), matrix.begin(), matrix.end());
    slices.insert(slices.end(), matrix.begin() + 2, matrix.begin() + 6);
  }
  for (const std::vector<float> &matrix : matrices)
    sources.push_back(make(makeTensor({4, 2}, StoredType::F32, matrix)));
  const WeightSourcePtr stacked = makeStacked(sources);
  EXPECT_EQ(stacked->shape().sizes, (std::vector<int64_t>{3, 4, 2}));
  EXPECT_EQ(stacked->bytesToRead(), 96u);
  EXPECT_EQ(stacked->floatType(), StoredType::F32);
  EXPECT_EQ(stacked->keptFormat(), WeightFormat::F32);
  expectOutputs(*stacked, all);
  const WeightSourcePtr sliced = makeSlices(stacked, 1, 2);
  EXPECT_EQ(sliced->shape().sizes, (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(sliced->bytesToRead(), 48u);
  expectOutputs(*sliced, slices);
}

/// An error about an output names the tensor that has it.
TEST(Experts, NameTheTensorOfAnOutput) {
  const std::vector<float> floats(8);
  std::vector<WeightSourcePtr> sources;
  for (const char *name : {"a", "b", "c"}) {
    StoredTensor tensor = makeTensor({4, 2}, StoredType::F32, floats);
    tensor.name = name;
    sources.push_back(make(tensor));
  }
  const WeightSourcePtr stacked = makeStacked(sources);
  EXPECT_EQ(stacked->nameOf(5).line(), sources[1]->name().line());
  // Two outputs of each.
  EXPECT_EQ(makeSlices(stacked, 1, 2)->nameOf(4).line(),
            sources[2]->name().line());
  // Those of one expert, as a calibration divides them.
  EXPECT_EQ(makeOutputs(stacked, outputsFrom(8, 4))->nameOf(0).line(),
            sources[2]->name().line());
}

TEST(Experts, OfSeveralTypesAreF32) {
  const std::vector<float> floats = {1, 2};
  const std::vector<uint16_t> halves = {0x3f80, 0x4000};
  const WeightSourcePtr stacked =
      makeStacked({make(makeTensor({1, 2}, StoredType::F32, floats)),
                   make(makeTensor({1, 2}, StoredType::BF16, halves))});
  EXPECT_EQ(stacked->floatType(), std::nullopt);
  EXPECT_EQ(stacked->keptFormat(), WeightFormat::F32);
  expectOutputs(*stacked, {1, 2, 1, 2});
}

/// Experts that a form left as floats beside experts of integers.
TEST(Experts, OfIntegersAndFloatsAreQ8_0) {
  std::vector<uint8_t> blocks(sizeof(BlockQ4_0));
  blocks[1] = 0x2c;
  const std::vector<float> floats(32, 0.5F);
  const WeightSourcePtr stacked =
      makeStacked({make(makeTensor({1, 32}, StoredType::F32, floats)),
                   make(makeTensor({1, 32}, StoredType::Q4_0, blocks))});
  EXPECT_EQ(stacked->form(), "several forms");
  EXPECT_EQ(stacked->keptFormat(), WeightFormat::Q8_0);
  EXPECT_TRUE(stacked->hasIntegers());
}

TEST(Experts, LieByColumnsInAModelWithVision) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  // [matrices, K, outputs].
  const WeightSourcePtr source =
      makeTransposed(makeTensor({2, 3, 4}, StoredType::F32, values));
  EXPECT_EQ(source->shape().sizes, (std::vector<int64_t>{2, 4, 3}));
  std::vector<float> needed;
  for (int matrix = 0; matrix < 2; ++matrix)
    for (int output = 0; output < 4; ++output)
      for (int i = 0; i < 3; ++i)
        needed.push_back(static_cast<float>(matrix * 12 + i * 4 + output));
  expectOutputs(*source, needed);
}

TEST(Padded, HasZerosBehindOutputsAndColumns) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const WeightSourcePtr matrix = makePadded(
      make(makeTensor({2, 3}, StoredType::F32, values)), WeightShape{{4, 5}});
  EXPECT_EQ(matrix->shape(), (WeightShape{{4, 5}}));
  EXPECT_FALSE(matrix->hasIntegers());
  expectOutputs(*matrix,
                {1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const WeightSourcePtr vector = makePadded(
      make(makeTensor({6}, StoredType::F32, values)), WeightShape{{8}});
  expectOutputs(*vector, {1, 2, 3, 4, 5, 6, 0, 0});
}

/// The integers of an expert's outputs go where those of the stack do.
TEST(Experts, KeepTheirIntegers) {
  Random random(5);
  std::vector<std::vector<uint8_t>> blocks;
  std::vector<WeightSourcePtr> sources;
  for (int i = 0; i < 3; ++i) {
    std::vector<uint8_t> &bytes = blocks.emplace_back(12 * sizeof(BlockQ4_0));
    for (size_t j = 0; j < bytes.size(); ++j)
      // The upper byte of a scale is that of a small number.
      bytes[j] = j % sizeof(BlockQ4_0) == 1
                     ? uint8_t{0x2c}
                     : static_cast<uint8_t>(random.between(0, 255));
  }
  for (const std::vector<uint8_t> &bytes : blocks)
    sources.push_back(make(makeTensor({12, 32}, StoredType::Q4_0, bytes)));
  const WeightSourcePtr stacked = makeStacked(sources);
  ASSERT_EQ(stacked->keptFormat(), WeightFormat::Q4_0);
  const auto size = static_cast<size_t>(panelBytes(WeightFormat::Q4_0, 32));
  for (int64_t first = 0; first < 20; ++first) {
    const OutputSet all = (1u << kPanelOutputs) - 1;
    ASSERT_EQ(stacked->kept(WeightFormat::Q4_0, first, kPanelOutputs), all);
    std::vector<uint8_t> panel(size), needed(size);
    stacked->keep(WeightFormat::Q4_0, first, all, 0, panel.data());
    for (int64_t lane = 0; lane < kPanelOutputs; ++lane)
      sources[static_cast<size_t>((first + lane) / 12)]->keep(
          WeightFormat::Q4_0, (first + lane) % 12, 1, lane, needed.data());
    EXPECT_EQ(panel, needed);
  }
}
