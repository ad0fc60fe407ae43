//===- GroupedFormsTest.cpp - Integers in groups of columns ---------------===//

#include "FormTensors.h"
#include "NumericsRandom.h"
#include "TempDir.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Weights/Forms.h"
#include "qwen/Weights/Sources.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

namespace {
/// A quantized matrix of N outputs and K columns, and its tensors.
struct Matrix {
  int64_t n, k;
  int bits;
  int64_t group;
  std::vector<uint8_t> codes;
  /// [output][group], numbers of f16 and integers.
  std::vector<float> scales, zeros;
  /// The group of each column.
  std::vector<int32_t> groupOf;

  Matrix(int64_t n, int64_t k, int bits, int64_t group, bool symmetric)
      : n(n), k(k), bits(bits), group(group) {
    Random random(3);
    for (int64_t i = 0; i < n * k; ++i)
      codes.push_back(static_cast<uint8_t>(random.between(0, most())));
    for (int64_t i = 0; i < n * groups(); ++i) {
      scales.push_back(f16ToF32(f32ToF16(random.value())));
      zeros.push_back(static_cast<float>(
          symmetric ? most() / 2 + 1 : random.between(0, most())));
    }
    for (int64_t i = 0; i < k; ++i)
      groupOf.push_back(static_cast<int32_t>(i / group));
  }

  int64_t groups() const { return k / group; }
  int64_t most() const { return (1 << bits) - 1; }

  std::vector<float> values() const {
    std::vector<float> result;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) {
        const auto at =
            static_cast<size_t>(i * groups() + groupOf[static_cast<size_t>(j)]);
        result.push_back((codes[static_cast<size_t>(i * k + j)] - zeros[at]) *
                         scales[at]);
      }
    return result;
  }
};

/// Tensors and their bytes.
struct Tensors {
  TensorsByName byName;
  std::map<std::string, std::vector<uint8_t>> bytes;

  template <typename T>
  void add(const std::string &name, const std::string &dtype,
           std::vector<int64_t> shape, const std::vector<T> &values) {
    std::vector<uint8_t> &to = bytes[name];
    to.resize(values.size() * sizeof(T));
    std::memcpy(to.data(), values.data(), to.size());
    StoredTensor &tensor = byName[name];
    tensor.name = "model." + name;
    tensor.path = "d/f";
    tensor.type = parseStoredType(dtype);
    tensor.typeName = dtype;
    tensor.shape = std::move(shape);
    tensor.bytes = to;
  }

  /// Words [rows][columns / (32 / bits)] of codeAt(row, column).
  template <typename CodeAt>
  void addWords(const std::string &name, int64_t rows, int64_t columns,
                int bits, bool alongRows, CodeAt codeAt, uint32_t less = 0) {
    const int64_t inWord = 32 / bits;
    std::vector<uint32_t> words;
    const int64_t wordRows = alongRows ? rows / inWord : rows;
    const int64_t wordColumns = alongRows ? columns : columns / inWord;
    for (int64_t i = 0; i < wordRows; ++i)
      for (int64_t j = 0; j < wordColumns; ++j) {
        uint32_t word = 0;
        for (int64_t at = 0; at < inWord; ++at)
          word |= static_cast<uint32_t>(alongRows ? codeAt(i * inWord + at, j)
                                                  : codeAt(i, j * inWord + at))
                  << (at * bits);
        words.push_back(word - less);
      }
    add(name, "I32", {wordRows, wordColumns}, words);
  }
};
} // namespace

/// The tensors of GPTQ; `less` is 0x11111111 in version 1.
static Tensors packGptq(const Matrix &m, uint32_t less) {
  Tensors tensors;
  tensors.addWords("m.qweight", m.k, m.n, m.bits, true,
                   [&](int64_t column, int64_t output) {
                     return m.codes[static_cast<size_t>(output * m.k + column)];
                   });
  tensors.addWords(
      "m.qzeros", m.groups(), m.n, m.bits, false,
      [&](int64_t group, int64_t output) {
        return static_cast<uint8_t>(
            m.zeros[static_cast<size_t>(output * m.groups() + group)]);
      },
      less);
  std::vector<uint16_t> scales;
  for (int64_t group = 0; group < m.groups(); ++group)
    for (int64_t i = 0; i < m.n; ++i)
      scales.push_back(
          f32ToF16(m.scales[static_cast<size_t>(i * m.groups() + group)]));
  tensors.add("m.scales", "F16", {m.groups(), m.n}, scales);
  tensors.add("m.g_idx", "I32", {m.k}, m.groupOf);
  return tensors;
}

static json gptqConfig(const Matrix &m, bool symmetric) {
  return {{"bits", m.bits},
          {"group_size", m.group},
          {"sym", symmetric},
          {"desc_act", true},
          {"checkpoint_format", "gptq_v2"}};
}

static WeightSources makeAll(const TensorsByName &tensors, const json &config,
                             std::string_view method) {
  const JsonSource source = JsonSource::ofFile("d/config.json");
  return makeSources(tensors, JsonValue(config, "q", source), method);
}

static std::string errorOf(const Tensors &tensors, const json &config,
                           std::string_view method = "gptq") {
  return test::messageOf([&] { makeAll(tensors.byName, config, method); });
}

namespace {
/// The format of a matrix of GPTQ.
struct Case {
  int bits;
  int64_t group;
  bool symmetric;
  WeightFormat format;
  bool isExact = true;
};
} // namespace

static constexpr Case kCases[] = {
    {4, 128, true, WeightFormat::Q4_G128},
    {4, 256, true, WeightFormat::Q4_G128},
    {4, 32, true, WeightFormat::Q4_0},
    {4, 192, true, WeightFormat::Q4_0},
    {4, 128, false, WeightFormat::Q4_Z_128},
    {4, 384, false, WeightFormat::Q4_Z_128},
    {4, 64, false, WeightFormat::Q4_Z_64},
    {4, 32, false, WeightFormat::Q4_Z_32},
    // q - z is from -15 to 15.
    {4, 96, false, WeightFormat::Q8_0},
    {4, 24, true, WeightFormat::Q8_0, false},
    {8, 128, true, WeightFormat::Q8_0},
    {8, 48, true, WeightFormat::Q8_0, false},
    {8, 128, false, WeightFormat::Q8_0, false},
};

TEST(GroupedForms, KeepIntegersOfGptq) {
  for (const auto &[bits, group, symmetric, format, isExact] : kCases) {
    const Matrix m(40, 768, bits, group, symmetric);
    const uint32_t one = bits == 4 ? 0x11111111 : 0x01010101;
    for (const bool isFirst : {false, true}) {
      json config = gptqConfig(m, symmetric);
      config["checkpoint_format"] = isFirst ? "gptq" : "gptq_v2";
      const Tensors tensors = packGptq(m, isFirst ? one : 0);
      const WeightSources sources = makeAll(tensors.byName, config, "gptq");
      ASSERT_EQ(sources.all().size(), 1u);
      const WeightSource &source = *sources.find("m.weight")->source;
      const std::string what =
          std::to_string(bits) + " bits, groups of " + std::to_string(group);
      EXPECT_EQ(sources.find("m.weight")->tensors.size(), 4u);
      EXPECT_EQ(source.shape(), (WeightShape{{40, 768}}));
      EXPECT_EQ(source.form(), "GPTQ " + std::to_string(bits) + "-bit");
      EXPECT_EQ(source.name().line(), "d/f: tensor \"model.m.qweight\"");
      EXPECT_EQ(source.keptFormat(), format) << what;
      EXPECT_EQ(valuesOf(source), m.values()) << what;
      EXPECT_EQ(source.kept(WeightFormat::Q6_K, 0, 3), 0u);
      if (isExact)
        EXPECT_EQ(keptValues(source, format), m.values()) << what;
      else
        EXPECT_EQ(source.kept(format, 0, 3), 0u) << what;
    }
  }
}

TEST(GroupedForms, KeepSymmetricIntegersInOtherFormats) {
  const Matrix m(16, 256, 4, 128, true);
  const Tensors tensors = packGptq(m, 0);
  const WeightSources sources =
      makeAll(tensors.byName, gptqConfig(m, true), "gptq");
  for (const WeightFormat format : {WeightFormat::Q4_0, WeightFormat::Q5_0,
                                    WeightFormat::Q8_0, WeightFormat::Q4_Z_32})
    EXPECT_EQ(keptValues(*sources.find("m.weight")->source, format), m.values())
        << weightFormatName(format);
}

TEST(GroupedForms, EncodeWhatF16DoesNotHold) {
  const Matrix m(16, 256, 4, 128, true);
  Tensors tensors = packGptq(m, 0);
  std::vector<float> scales(32, 0.5f);
  tensors.add("m.scales", "F32", {2, 16}, scales);
  const auto formatOf = [&] {
    return makeAll(tensors.byName, gptqConfig(m, true), "gptq")
        .find("m.weight")
        ->source->keptFormat();
  };
  EXPECT_EQ(formatOf(), WeightFormat::Q4_G128);
  for (const float odd :
       {0.1f, 1e6f, std::numeric_limits<float>::quiet_NaN()}) {
    scales[17] = odd;
    tensors.add("m.scales", "F32", {2, 16}, scales);
    EXPECT_EQ(formatOf(), WeightFormat::Q8_0) << odd;
  }
}

TEST(GroupedForms, SortScatteredColumns) {
  Matrix m(32, 256, 4, 64, false);
  for (size_t i = 0; i < m.groupOf.size(); ++i)
    m.groupOf[i] = static_cast<int32_t>(i * 7 % 4);
  Tensors tensors = packGptq(m, 0);
  const std::vector<float> written = Random(4).values(256 * 32);
  tensors.add("up.weight", "F32", {256, 32}, written);
  WeightSources sources = makeAll(tensors.byName, gptqConfig(m, false), "gptq");
  const WeightSourcePtr source = sources.find("m.weight")->source;
  EXPECT_EQ(valuesOf(*source), m.values());
  const std::vector<int32_t> order(source->columnOrder().begin(),
                                   source->columnOrder().end());
  ASSERT_EQ(order.size(), 256u);
  EXPECT_EQ(order[1], 4);
  EXPECT_EQ(m.groupOf[static_cast<size_t>(order[64])], 1);
  std::vector<float> sorted;
  const std::vector<float> values = m.values();
  for (size_t i = 0; i < 32; ++i)
    for (const int32_t column : order)
      sorted.push_back(values[i * 256 + static_cast<size_t>(column)]);
  EXPECT_EQ(keptValues(*source, WeightFormat::Q4_Z_64), sorted);
  const WeightSourcePtr unkept = inModelOrder(source);
  EXPECT_EQ(valuesOf(*unkept), m.values());
  EXPECT_EQ(unkept->keptFormat(), WeightFormat::Q8_0);
  EXPECT_EQ(unkept->kept(WeightFormat::Q4_Z_64, 0, 2), 0u);
  EXPECT_TRUE(unkept->columnOrder().empty());
  EXPECT_EQ(inModelOrder(unkept), unkept);

  const std::vector<std::string> writers = {"up.weight"};
  orderInputs(sources, "m.weight", std::vector<std::string>{"nothing"});
  EXPECT_EQ(sources.find("m.weight")->source, source);
  orderInputs(sources, "m.weight", writers);
  const WeightSource &ordered = *sources.find("m.weight")->source;
  EXPECT_TRUE(ordered.columnOrder().empty());
  EXPECT_EQ(valuesOf(ordered), sorted);
  EXPECT_EQ(ordered.keptFormat(), WeightFormat::Q4_Z_64);
  EXPECT_EQ(keptValues(ordered, WeightFormat::Q4_Z_64), sorted);
  const std::vector<float> up = valuesOf(*sources.find("up.weight")->source);
  for (size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(up[i * 32], written[static_cast<size_t>(order[i]) * 32]);

  // A group of more columns than the others.
  m.groupOf[0] = 1;
  const Tensors uneven = packGptq(m, 0);
  const WeightSources others =
      makeAll(uneven.byName, gptqConfig(m, false), "gptq");
  const WeightSource &odd = *others.find("m.weight")->source;
  EXPECT_EQ(valuesOf(odd), m.values());
  EXPECT_TRUE(odd.columnOrder().empty());
  EXPECT_EQ(odd.keptFormat(), WeightFormat::Q8_0);
  EXPECT_EQ(odd.kept(WeightFormat::Q8_0, 0, 2), 0u);
}

TEST(GroupedForms, TakeTheFirstRuleOfAModule) {
  const Matrix m(16, 256, 8, 64, true);
  const Tensors tensors = packGptq(m, 0x01010101);
  json config = gptqConfig(m, true);
  config["bits"] = 4;
  config["group_size"] = 128;
  // It is nowhere in the middle of the name.
  config["dynamic"] = {{"+:del\\.m", {{"bits", 4}}},
                       {"-:.*\\.n", json::object()},
                       {"model\\.m", {{"bits", 8}, {"group_size", 64}}}};
  const WeightSources sources = makeAll(tensors.byName, config, "gptq");
  EXPECT_EQ(valuesOf(*sources.find("m.weight")->source), m.values());
}

TEST(GroupedForms, RefuseTensorsOfGptq) {
  const Matrix m(16, 64, 4, 32, true);
  const json config = gptqConfig(m, true);
  const Tensors good = packGptq(m, 0);
  EXPECT_EQ(errorOf(good, config), "");
  const std::string qweight = "d/f: tensor \"model.m.qweight\" ";
  const auto without = [&](const char *name) {
    Tensors tensors = good;
    tensors.byName.erase(name);
    return errorOf(tensors, config);
  };
  EXPECT_EQ(without("m.scales"),
            qweight + "has no tensor \"model.m.scales\" beside it, which its "
                      "form needs");
  EXPECT_EQ(without("m.g_idx"),
            qweight + "has no g_idx beside it when the columns of groups are "
                      "scattered (desc_act)");
  EXPECT_EQ(without("m.qzeros"), "");

  Tensors tensors = packGptq(m, 0);
  tensors.add("m.weight", "F32", {1}, std::vector<float>{0});
  EXPECT_EQ(errorOf(tensors, config),
            "d/f: tensor \"model.m.weight\" and \"m.qweight\" both give the "
            "weight m.weight");
  tensors = packGptq(m, 0);
  tensors.add("m.scales", "F16", {1, 16}, std::vector<uint16_t>(16));
  EXPECT_EQ(errorOf(tensors, config),
            "d/f: tensor \"model.m.scales\" has shape [1, 16] when [2, 16] is "
            "needed");
  tensors = packGptq(m, 0);
  tensors.add("m.g_idx", "I32", {64}, std::vector<int32_t>(64, 2));
  EXPECT_EQ(errorOf(tensors, config),
            "d/f: tensor \"model.m.g_idx\" has the group 2 when 0 to 1 are "
            "there");
  tensors = packGptq(m, 0);
  tensors.add(
      "m.qzeros", "I32", {2, 2},
      std::vector<uint32_t>{0x88888888, 0x88888888, 0x88888888, 0x77777777});
  EXPECT_EQ(errorOf(tensors, config),
            "d/f: tensor \"model.m.qzeros\" has other zero points than 8 when "
            "its quantization is symmetric (sym)");
  tensors = packGptq(m, 0);
  tensors.add("m.qweight", "I32", {8, 0}, std::vector<uint32_t>());
  EXPECT_EQ(errorOf(tensors, config),
            qweight + "has shape [8, 0] when a matrix is needed");
  tensors.add("m.qweight", "F32", {8, 16}, std::vector<float>(128));
  EXPECT_NE(errorOf(tensors, config).find("F32"), std::string::npos);
}

TEST(GroupedForms, RefuseConfigurationsOfGptq) {
  const Matrix m(16, 64, 4, 32, true);
  const Tensors tensors = packGptq(m, 0);
  const auto with = [&](const char *key, const json &value) {
    json config = gptqConfig(m, true);
    config[key] = value;
    return errorOf(tensors, config);
  };
  EXPECT_EQ(with("bits", 3),
            "d/config.json: q.bits 3 is not supported; supported are 4 and 8");
  EXPECT_EQ(with("bits", "4"), "d/config.json: q.bits is \"4\" when an integer "
                               "from 1 to 32 is needed");
  EXPECT_EQ(with("group_size", 0), "d/config.json: q.group_size is 0 when -1 "
                                   "or a positive integer is needed");
  EXPECT_EQ(with("group_size", 24),
            "d/f: tensor \"model.m.qweight\" has 64 columns when a multiple of "
            "the group size, 24, is needed");
  EXPECT_EQ(with("checkpoint_format", "marlin"),
            "d/config.json: q.checkpoint_format \"marlin\" is not supported; "
            "supported are \"gptq\" and \"gptq_v2\"");
  EXPECT_EQ(with("dynamic", {{"+:(?!a)", json::object()}}),
            "d/config.json: q.dynamic.+:(?!a) has the regular expression "
            "\"(?!a)\", which RE2 does not read (invalid perl operator: (?!); "
            "look-around and back-references are not supported");
  EXPECT_NE(with("pack_dtype", "int8"), "");
  EXPECT_NE(with("adapter", json::object()), "");
  EXPECT_NE(with("sym", "yes"), "");
}

//===----------------------------------------------------------------------===//
// AWQ and AutoRound
//===----------------------------------------------------------------------===//

/// The tensors of AWQ's gemm: the codes of 8 outputs have other places.
static Tensors packAwq(const Matrix &m) {
  static constexpr int64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto outputAt = [](int64_t at) { return at / 8 * 8 + kOrder[at % 8]; };
  Tensors tensors = packGptq(m, 0);
  tensors.byName.erase("m.g_idx");
  tensors.addWords(
      "m.qweight", m.k, m.n, 4, false, [&](int64_t column, int64_t at) {
        return m.codes[static_cast<size_t>(outputAt(at) * m.k + column)];
      });
  tensors.addWords(
      "m.qzeros", m.groups(), m.n, 4, false, [&](int64_t group, int64_t at) {
        return static_cast<uint8_t>(
            m.zeros[static_cast<size_t>(outputAt(at) * m.groups() + group)]);
      });
  return tensors;
}

static json awqConfig(const Matrix &m, const char *version) {
  return {{"bits", 4}, {"group_size", m.group}, {"version", version}};
}

TEST(GroupedForms, KeepIntegersOfAwqColumns) {
  const Matrix m(40, 256, 4, 64, false);
  const Tensors tensors = packAwq(m);
  const WeightSources sources =
      makeAll(tensors.byName, awqConfig(m, "gemm"), "awq");
  const WeightSource &source = *sources.find("m.weight")->source;
  EXPECT_EQ(source.form(), "AWQ 4-bit");
  EXPECT_EQ(source.keptFormat(), WeightFormat::Q4_Z_64);
  EXPECT_EQ(valuesOf(source), m.values());
  EXPECT_EQ(keptValues(source, WeightFormat::Q4_Z_64), m.values());
}

TEST(GroupedForms, KeepIntegersOfAwqRows) {
  // Words of zero points in a row of so many groups.
  for (const auto &[k, group, words] :
       {std::tuple(256, 32, 4), std::tuple(256, 64, 2),
        std::tuple(1280, 128, 2), std::tuple(256, 256, 1)}) {
    const Matrix m(24, k, 4, group, false);
    Tensors tensors;
    tensors.addWords(
        "m.qweight", m.n, m.k, 4, false, [&](int64_t output, int64_t column) {
          return m.codes[static_cast<size_t>(output * m.k + column)];
        });
    const int64_t padded = words * 8;
    tensors.addWords("m.qzeros", m.n, padded, 4, false,
                     [&](int64_t output, int64_t at) -> uint8_t {
                       return at < m.groups()
                                  ? static_cast<uint8_t>(
                                        m.zeros[static_cast<size_t>(
                                            output * m.groups() + at)])
                                  : 0;
                     });
    std::vector<uint16_t> scales(static_cast<size_t>(m.n * padded));
    for (int64_t i = 0; i < m.n; ++i)
      for (int64_t j = 0; j < m.groups(); ++j)
        scales[static_cast<size_t>(i * padded + j)] =
            f32ToF16(m.scales[static_cast<size_t>(i * m.groups() + j)]);
    tensors.add("m.scales", "F16", {m.n, padded}, scales);
    const WeightSources sources =
        makeAll(tensors.byName, awqConfig(m, "gemv"), "awq");
    const WeightSource &source = *sources.find("m.weight")->source;
    EXPECT_EQ(valuesOf(source), m.values()) << group;
    EXPECT_EQ(keptValues(source, source.keptFormat()), m.values()) << group;
    tensors.add("m.qzeros", "I32", {m.n, words + 1},
                std::vector<uint32_t>(static_cast<size_t>(m.n * (words + 1))));
    EXPECT_NE(errorOf(tensors, awqConfig(m, "gemv"), "awq").find("qzeros"),
              std::string::npos);
  }
}

TEST(GroupedForms, RefuseConfigurationsOfAwq) {
  const Matrix m(16, 64, 4, 32, false);
  const Tensors tensors = packAwq(m);
  EXPECT_EQ(errorOf(tensors, awqConfig(m, "exllama"), "awq"),
            "d/config.json: q.version \"exllama\" is not supported; supported "
            "are \"gemm\" and \"gemv\"");
  const auto with = [&](const char *key, const json &value) {
    json config = awqConfig(m, "gemm");
    config[key] = value;
    return errorOf(tensors, config, "awq");
  };
  EXPECT_EQ(with("bits", 8),
            "d/config.json: q.bits 8 is not supported; supported is 4");
  EXPECT_EQ(with("zero_point", false), "d/config.json: q.zero_point false is "
                                       "not supported; supported is true");
  EXPECT_EQ(with("modules_to_not_convert", "mlp"),
            "d/config.json: q.modules_to_not_convert is \"mlp\" when an array "
            "is needed");
  EXPECT_EQ(with("modules_to_not_convert", {"mlp"}), "");
  EXPECT_EQ(with("version", 3), "d/config.json: q.version is 3 when a string "
                                "is needed");
}

TEST(GroupedForms, ReadPackingsOfAutoRound) {
  const json all = {{"bits", 4}, {"group_size", 64}, {"sym", false}};
  const Matrix zeros(16, 256, 4, 64, false), none(16, 256, 4, 64, true);
  const auto valuesWith = [&](const Tensors &tensors, const char *packing,
                              json config) {
    config["packing_format"] = packing;
    const WeightSources sources =
        makeAll(tensors.byName, config, "intel/auto-round");
    const WeightSource &source = *sources.find("m.weight")->source;
    EXPECT_EQ(source.form(), "AutoRound 4-bit");
    return valuesOf(source);
  };
  EXPECT_EQ(
      valuesWith(packGptq(zeros, 0x11111111), "auto_round:auto_gptq", all),
      zeros.values());
  EXPECT_EQ(valuesWith(packGptq(zeros, 0), "auto_round:exllamav2", all),
            zeros.values());
  EXPECT_EQ(valuesWith(packAwq(zeros), "auto_round:auto_awq", all),
            zeros.values());
  // A module that differs, by its name or by an expression.
  for (const char *module : {"model.m", "odel\\.[a-z]$"}) {
    json config = all;
    config["group_size"] = 128;
    config["extra_config"] = {
        {module, {{"group_size", 64}, {"sym", true}}},
        {"model.n", {{"bits", 16}, {"data_type", "float"}}}};
    EXPECT_EQ(valuesWith(packAwq(none), "auto_round:auto_awq", config),
              none.values());
  }
  json config = all;
  EXPECT_EQ(errorOf(packAwq(zeros), config, "auto-round"),
            "d/config.json has no q.packing_format");
  config["packing_format"] = "auto_round:auto_awq";
  config["sym"] = true;
  EXPECT_NE(errorOf(packAwq(zeros), config, "auto-round")
                .find("has other zero points than 8"),
            std::string::npos);
  config["data_type"] = "mx_fp";
  EXPECT_NE(errorOf(packAwq(none), config, "auto-round").find("q.data_type"),
            std::string::npos);
}
