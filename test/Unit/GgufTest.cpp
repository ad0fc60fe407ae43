//===- GgufTest.cpp - Parser of GGUF files --------------------------------===//

#include "qwen/Import/Checkpoint/Gguf.h"

#include "GgufBytes.h"
#include "TempDir.h"
#include "qwen/Support/SplitName.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static std::string ggufError(const std::string &file) {
  return messageOf([&] { parse(file); });
}
static std::string ggufError(const GgufBytes &file) {
  return ggufError(file.make());
}

/// The error about a file whose only tensor is `tensor`.
static std::string ggufError(const GgufEntry &tensor) {
  return ggufError(GgufBytes{{}, {tensor}});
}

//===----------------------------------------------------------------------===//
// The parser
//===----------------------------------------------------------------------===//

TEST(Gguf, ReadsKeys) {
  GgufBytes file;
  file.keys = {
      u32("a", 7),
      key("b", GgufType::I8, raw(int8_t{-3})),
      key("c", GgufType::U64, raw(UINT64_MAX)),
      f32("d", 1e-6F),
      key("e", GgufType::F64, raw(0.25)),
      key("f", GgufType::Bool, raw(uint8_t{1})),
      string("g", "text\n"),
      strings("h", {"one", "", "three"}),
      array("i", GgufType::I32, 2, raw(int32_t{-1}) + raw(int32_t{4})),
      key("j", GgufType::U16, raw(uint16_t{65535})),
  };
  const std::string bytes = file.make();
  const GgufFile parsed = parse(bytes);
  EXPECT_EQ(parsed.values.size(), file.keys.size());
  EXPECT_EQ(parsed.values["a"], 7);
  EXPECT_EQ(parsed.values["b"], -3);
  EXPECT_EQ(parsed.values["c"], UINT64_MAX);
  // The f64 of the text, not that of the f32.
  EXPECT_EQ(parsed.values["d"], 1e-6);
  EXPECT_EQ(parsed.values["e"], 0.25);
  EXPECT_EQ(parsed.values["f"], true);
  EXPECT_EQ(parsed.values["g"], "text\n");
  EXPECT_EQ(parsed.values["j"], 65535);
  EXPECT_EQ(ggufStrings(parsed, "f", "h"),
            (std::vector<std::string_view>{"one", "", "three"}));
  EXPECT_EQ(ggufIntegers(parsed, "f", "i"), (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(messageOf([&] { ggufStrings(parsed, "p", "i"); }),
            "p: i is an array of numbers when strings are needed");
  EXPECT_EQ(messageOf([&] { ggufIntegers(parsed, "p", "h"); }),
            "p: h is not an array of integers");
  EXPECT_EQ(messageOf([&] { ggufStrings(parsed, "p", "a"); }),
            "p has no array a");
}

TEST(Gguf, ReadsTensors) {
  GgufBytes file{
      {u32("general.alignment", 64)},
      {{"a", {64, 3}, StoredType::Q4_0}, {"b", {5}}, {"c", {2, 2, 2}}},
      2,
      64};
  const std::string bytes = file.make();
  const std::vector<StoredTensor> tensors = parse(bytes).tensors;
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].path, "dir/f");
  EXPECT_EQ(tensors[0].type, StoredType::Q4_0);
  EXPECT_EQ(tensors[0].typeName, "Q4_0");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(tensors[0].bytes.size(), 3u * 2 * 18);
  EXPECT_EQ(tensors[0].offset % 64, 0u);
  EXPECT_EQ(tensors[0].bytes.data(),
            reinterpret_cast<const uint8_t *>(bytes.data()) +
                tensors[0].offset);
  EXPECT_EQ(tensors[1].offset, tensors[0].offset + 128);
  EXPECT_EQ(tensors[2].shape, (std::vector<int64_t>{2, 2, 2}));
  // The padding behind the last tensor may be missing.
  EXPECT_EQ(parse(bytes.substr(0, tensors[2].offset + 32)).tensors.size(), 3u);
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_EQ(ggufError(""),
            "dir/f is neither a folder nor a GGUF file: it begins "
            "with \"\" when \"GGUF\" is needed");
  EXPECT_EQ(ggufError("{\"a\""),
            "dir/f is neither a folder nor a GGUF file: it "
            "begins with \"{\\\"a\\\"\" when \"GGUF\" is "
            "needed");
  EXPECT_EQ(ggufError("GGUF\3"), "dir/f: the version needs 4 bytes when 1 are "
                                 "left in the file; it may be truncated");
  for (const uint32_t version : {1U, 4U})
    EXPECT_EQ(ggufError(GgufBytes{{}, {}, version}),
              "dir/f has GGUF version " + std::to_string(version) +
                  " when 2 or 3 is needed");
  EXPECT_EQ(ggufError(GgufBytes{{}, {}, 3U << 24}),
            "dir/f is big-endian, which is not supported; convert it with "
            "gguf-convert-endian of the gguf package");
}

TEST(Gguf, RefusesEveryCut) {
  const std::string file = GgufBytes{
      {string("s", "x"), strings("a", {"b"})},
      {{"t", {3, 2}}}}.make();
  for (size_t size = 0; size < file.size() - 8; ++size)
    EXPECT_NE(ggufError(file.substr(0, size)), "") << size;
}

TEST(Gguf, RefusesKeys) {
  const auto errorOfKey = [](const std::string &bytes) {
    return ggufError(GgufBytes{{bytes}, {}});
  };
  EXPECT_EQ(ggufError(GgufBytes{{u32("a\n", 1), u32("a\n", 2)}, {}}),
            "dir/f: key \"a\\n\" is there twice");
  EXPECT_EQ(errorOfKey(key("a", GgufType(13), "")),
            "dir/f: key \"a\" has a value of the unknown type 13");
  EXPECT_EQ(errorOfKey(raw(UINT64_MAX) + "x"),
            "dir/f: the name of a key needs 18446744073709551615 bytes when 32 "
            "are left in the file; it may be truncated");
  EXPECT_EQ(errorOfKey(key("a", GgufType::String, raw(uint64_t{1} << 62))),
            "dir/f: key \"a\" needs 4611686018427387904 bytes when 19 are left "
            "in the file; it may be truncated");
  EXPECT_EQ(errorOfKey(array("a", GgufType::U64, uint64_t{1} << 61, "")),
            "dir/f: key \"a\" is an array of 2305843009213693952 values");
  EXPECT_EQ(errorOfKey(array("a", GgufType::Array, 1, "")),
            "dir/f: key \"a\" is an array of type 9 when numbers, booleans or "
            "strings are needed");
  EXPECT_EQ(errorOfKey(array("a", GgufType(77), 1, "")),
            "dir/f: key \"a\" is an array of type 77 when numbers, booleans or "
            "strings are needed");
  // Ends at the first string that is not there.
  EXPECT_EQ(errorOfKey(array("a", GgufType::String, uint64_t{1} << 40, "")),
            "dir/f: key \"a\" needs 8 bytes when 7 are left in the file; it "
            "may be truncated");
  for (const uint32_t alignment : {0U, 3U, 1U << 31})
    EXPECT_NE(errorOfKey(u32("general.alignment", alignment)), "");
  EXPECT_EQ(errorOfKey(string("general.alignment", "32")),
            "dir/f: general.alignment is \"32\" when an integer from 1 to "
            "1048576 is needed");
}

TEST(Gguf, RefusesTensors) {
  EXPECT_EQ(ggufError(GgufEntry{"t\n", {}}),
            "dir/f: tensor \"t\\n\" has 0 dimensions when 1 to 4 are needed");
  EXPECT_EQ(ggufError(GgufEntry{"t", {1, 1, 1, 1, 1}}),
            "dir/f: tensor \"t\" has 5 dimensions when 1 to 4 are needed");
  EXPECT_EQ(
      ggufError(GgufEntry{"t", {4, 0}}),
      "dir/f: tensor \"t\" has a dimension of 0, which is 0 or too large");
  const std::string entry = GgufBytes::entry({"t", {uint64_t{1} << 33, 1}}, 0);
  std::string huge = entry;
  huge.replace(huge.find(raw(uint64_t{1}), 13), 8, raw(uint64_t{1} << 33));
  const std::string header =
      "GGUF" + raw(3U) + raw(uint64_t{1}) + raw(uint64_t{0});
  EXPECT_EQ(ggufError(header + huge), "dir/f: tensor \"t\" has a dimension of "
                                      "8589934592, which is 0 or too large");
  EXPECT_EQ(ggufError(header + entry),
            "dir/f: tensor \"t\" needs 34359738368 bytes at 96 when the file "
            "has 65; it may be truncated");
  EXPECT_EQ(ggufError(GgufEntry{"t", {48, 2}, StoredType::Q4_0}),
            "dir/f: tensor \"t\" has K 48 when blocks of Q4_0 need a multiple "
            "of 32");
  GgufBytes gap{{}, {{"a", {8}}, {"b", {8}}}};
  std::string moved = gap.make();
  const std::string second = GgufBytes::entry(gap.tensors[1], 32);
  moved.replace(moved.find(second), second.size(),
                GgufBytes::entry(gap.tensors[1], 0));
  EXPECT_EQ(ggufError(moved),
            "dir/f: tensor \"b\" is at byte 0 of the data when "
            "the tensor before it ends at 32");
}

TEST(Gguf, RefusesTypesByName) {
  const auto errorOfType = [](uint32_t number) {
    std::string entry = GgufBytes::entry({"t", {32}}, 0);
    entry.replace(entry.size() - 12, 4, raw(number));
    return ggufError("GGUF" + raw(3U) + raw(uint64_t{1}) + raw(uint64_t{0}) +
                     entry);
  };
  const std::string needed =
      ", which is not supported; use a file of the model "
      "whose tensors are " +
      storedTypeList();
  EXPECT_EQ(errorOfType(16), "dir/f: tensor \"t\" has type IQ2_XXS" + needed);
  EXPECT_EQ(errorOfType(40), "dir/f: tensor \"t\" has type NVFP4" + needed);
  EXPECT_EQ(errorOfType(200),
            "dir/f: tensor \"t\" has the unknown type 200" + needed);
}

TEST(Gguf, ReadsManyKeysAndTensors) {
  constexpr int kMany = 200'000;
  GgufBytes file;
  for (int i = 0; i < kMany; ++i) {
    file.keys.push_back(key(std::to_string(i), GgufType::U8, raw(uint8_t{0})));
    file.tensors.push_back({std::to_string(i), {1}});
  }
  // Takes minutes if each name is compared with all names.
  EXPECT_EQ(parse(file.make()).tensors.size(), size_t{kMany});
}

TEST(Gguf, NamesSplitFiles) {
  EXPECT_EQ(ggufSplitName("a-00001-of-00003.gguf", 1), "a-00002-of-00003.gguf");
  EXPECT_EQ(ggufSplitName("-00001-of-00003.gguf", 12344),
            "-12345-of-00003.gguf");
  EXPECT_EQ(ggufSplitName("a-00001-of-00003.gguf", 99999), std::nullopt);
  for (const char *name : {"a.gguf", "a-0001-of-00003.gguf", "",
                           "a-00001-of-0000x.gguf", "a-00001-to-00003.gguf"})
    EXPECT_EQ(ggufSplitName(name, 0), std::nullopt) << name;
  EXPECT_EQ(ggufModelName("a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(ggufModelName("a.gguf"), "a");
  EXPECT_EQ(ggufModelName("-00001-of-00003.gguf"), "-00001-of-00003");
  EXPECT_EQ(ggufModelName("a-00001-of-00003"), "a-00001-of-00003");
}
