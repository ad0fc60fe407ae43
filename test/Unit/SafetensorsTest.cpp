//===- SafetensorsTest.cpp - Readers of checkpoints' tensors --------------===//

#include "qwen/Import/Checkpoint/Safetensors.h"

#include "TempDir.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// One file
//===----------------------------------------------------------------------===//

/// A file of `header` and `bytes` bytes of data with the values 0, 1, 2, ...
static std::string makeFile(const std::string &header, size_t bytes = 0) {
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  file += header;
  for (size_t i = 0; i < bytes; ++i)
    file += static_cast<char>(i);
  return file;
}

static std::vector<StoredTensor> parseBytes(const std::string &file) {
  return parseSafetensors(
      {reinterpret_cast<const uint8_t *>(file.data()), file.size()}, "dir/f");
}

/// The error about a file of `header` and `bytes` bytes of data.
static std::string errorOf(const std::string &header, size_t bytes = 0) {
  return messageOf([&] { parseBytes(makeFile(header, bytes)); });
}

TEST(Safetensors, Reads) {
  const std::string file = makeFile(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
          "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
          "none": {"dtype": "F16", "shape": [0, 5], "data_offsets": [20, 20]},
          "scalar": {"dtype": "I64", "shape": [], "data_offsets": [20, 28]}}  )",
      28);
  const std::vector<StoredTensor> tensors = parseBytes(file);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].path, "dir/f");
  EXPECT_EQ(tensors[0].type, StoredType::F32);
  EXPECT_EQ(tensors[0].shape, std::vector<int64_t>{2});
  EXPECT_EQ(tensors[0].offset, file.size() - 28);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].type, StoredType::BF16);
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[1].offset, file.size() - 20);
  ASSERT_EQ(tensors[1].bytes.size(), 12u);
  EXPECT_EQ(tensors[1].bytes[0], 8);
  EXPECT_EQ(tensors[2].name, "none");
  EXPECT_EQ(tensors[2].type, StoredType::F16);
  EXPECT_EQ(tensors[3].type, std::nullopt);
  EXPECT_EQ(tensors[3].typeName, "I64");
  EXPECT_EQ(tensors[3].bytes.size(), 8u);

  EXPECT_TRUE(parseBytes(makeFile("{}")).empty());
}

TEST(Safetensors, RefusesHeaderLengths) {
  EXPECT_EQ(messageOf([] { parseBytes(""); }),
            "dir/f has 0 bytes when a safetensors file starts with 8 for the "
            "length of its header");
  EXPECT_EQ(messageOf([] { parseBytes("1234567"); }),
            "dir/f has 7 bytes when a safetensors file starts with 8 for the "
            "length of its header");
  std::string file = makeFile("{}");
  file[0] = 3;
  EXPECT_EQ(messageOf([&] { parseBytes(file); }),
            "dir/f: its header would have 3 bytes when 2 are left in the file; "
            "it is truncated or not a safetensors file");
  file = "\xff\xff\xff\xff\xff\xff\xff\xff{}";
  EXPECT_EQ(messageOf([&] { parseBytes(file); }),
            "dir/f: its header would have 18446744073709551615 bytes when 2 "
            "are left in the file; it is truncated or not a safetensors file");
  EXPECT_EQ(errorOf("{}" + std::string(99'999'999, ' ')),
            "dir/f: its header has 100000001 bytes when at most 100000000 are "
            "allowed");
}

TEST(Safetensors, RefusesOtherHeaders) {
  EXPECT_EQ(errorOf(""), "dir/f: its header is not JSON: it is empty");
  EXPECT_EQ(errorOf("{"), "dir/f: its header is not JSON: it ends too early, "
                          "at column 2");
  EXPECT_EQ(errorOf("{} {}"), "dir/f: its header is not JSON at column 4");
  EXPECT_EQ(errorOf("{\"\xff\": 1}"),
            "dir/f: its header is not JSON at column 3");
  EXPECT_EQ(errorOf("[1]"),
            "dir/f: its header has an array when a JSON object is needed");
  EXPECT_EQ(errorOf("7"),
            "dir/f: its header has 7 when a JSON object is needed");
  EXPECT_EQ(errorOf(R"({"a": 1})"),
            "dir/f: tensor \"a\" is 1 when an object is needed");
  const std::string deep =
      "dir/f: its header has arrays and objects nested more than 3 deep";
  EXPECT_EQ(errorOf(R"({"a": {"shape": [[[1]]]}})"), deep);
  EXPECT_EQ(errorOf(std::string(1'000'000, '[')), deep);
}

TEST(Safetensors, RefusesNamesTwice) {
  EXPECT_EQ(
      errorOf(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                        "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
              2),
      "dir/f: its header has \"a\" twice");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "U8", "shape": [1], "shape": [2]}})"),
            "dir/f: its header has \"shape\" twice in \"a\"");
  // The same key in two tensors is not a duplicate.
  EXPECT_EQ(
      errorOf(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                        "b": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
              2),
      "");
}

TEST(Safetensors, ReadsManyTensors) {
  std::string header;
  for (int i = 0; i < 50'000; ++i) {
    const std::string place = std::to_string(i);
    header += (i ? ", \"" : "{\"") + place +
              R"(": {"dtype": "U8", "shape": [1], "data_offsets": [)" + place +
              ", " + std::to_string(i + 1) + "]}";
  }
  // Takes minutes in a sanitizer's build if each key searches all keys of its
  // object.
  EXPECT_EQ(parseBytes(makeFile(header + "}", 50'000)).size(), 50'000u);
}

TEST(Safetensors, RefusesManyDimensions) {
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "U8", "shape": [1, 1, 1, 1, 1, 1, 1, 1],
                              "data_offsets": [0, 1]}})",
                    1),
            "");
  std::string shape;
  for (int i = 0; i < 10'000'000; ++i)
    shape += "1,";
  EXPECT_EQ(errorOf(R"({"a\u001b[31m": {"shape": [)" + shape + "1]}}"),
            "dir/f: its header has more than 8 elements in \"shape\" of "
            "\"a\\u001b[31m\"");
}

TEST(Safetensors, RefusesEntries) {
  EXPECT_EQ(errorOf(R"({"a": {"shape": [], "data_offsets": [0, 4]}})", 4),
            "dir/f: tensor \"a\" has no dtype");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", 4),
            "dir/f: tensor \"a\" has no shape");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "F32", "shape": []}})", 4),
            "dir/f: tensor \"a\" has no data_offsets");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "F33"}})"),
            "dir/f: tensor \"a\" has the unknown dtype \"F33\"");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": 32}})"),
            "dir/f: tensor \"a\" has the unknown dtype 32");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "F32", "shape": 3}})"),
            "dir/f: tensor \"a\" has the shape 3 when an array is needed");
  for (const char *size : {"-1", "1.5", "\"1\"", "9223372036854775808"})
    EXPECT_EQ(errorOf(std::string(R"({"a": {"dtype": "F32", "shape": [2, )") +
                      size + "]}}"),
              std::string("dir/f: tensor \"a\" has ") + size +
                  " in its shape when a size is needed");
  // 2^62 values of 4 bytes: the count fits, the bytes do not.
  for (const char *shape : {"[4294967296, 1073741824]", "[9223372036854775807]",
                            "[0, 9223372036854775807, 9223372036854775807]"})
    EXPECT_EQ(errorOf(std::string(R"({"a": {"dtype": "F32", "shape": )") +
                      shape + R"(, "data_offsets": [0, 0]}})"),
              shape[1] == '0'
                  ? ""
                  : "dir/f: tensor \"a\" has a shape of more than 2^63 bits");
  EXPECT_EQ(
      errorOf(R"({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}})",
              2),
      "dir/f: tensor \"a\" has 12 bits when whole bytes are needed");
  for (const char *range : {"3", "[0]", "[0, 4, 8]", "[-1, 3]", "[0, 4.0]"})
    EXPECT_EQ(errorOf(std::string(R"({"a": {"dtype": "F32", "shape": [1],
                                      "data_offsets": )") +
                          range + "}}",
                      8),
              "dir/f: tensor \"a\" has data_offsets that are not two offsets");
}

TEST(Safetensors, RefusesNamesThatBreakLines) {
  EXPECT_EQ(errorOf(R"({"a\nb": {}})"), "dir/f: tensor \"a\\nb\" has no dtype");
  EXPECT_EQ(errorOf("{\"" + std::string(300, 'x') + "\": {}}"),
            "dir/f: tensor \"" + std::string(200, 'x') + "...\" has no dtype");
}

/// A header of f32 vectors: name, values, first and last byte.
struct Entry {
  const char *name;
  int64_t size, begin, end;
};
static std::string errorOf(std::initializer_list<Entry> entries, size_t bytes) {
  std::string header;
  for (const Entry &entry : entries)
    header += (header.empty() ? "{\"" : ", \"") + std::string(entry.name) +
              R"(": {"dtype": "F32", "shape": [)" + std::to_string(entry.size) +
              R"(], "data_offsets": [)" + std::to_string(entry.begin) + ", " +
              std::to_string(entry.end) + "]}";
  return errorOf(header + "}", bytes);
}

TEST(Safetensors, RefusesRanges) {
  EXPECT_EQ(errorOf({{"a", 2, 0, 8}}, 8), "");
  EXPECT_EQ(errorOf({{"a", 2, 8, 0}}, 8),
            "dir/f: tensor \"a\" has data_offsets 8 to 0, which end before "
            "they begin");
  EXPECT_EQ(errorOf({{"a", 2, 0, 8}}, 7),
            "dir/f: tensor \"a\" has data_offsets 0 to 8 when the file has 7 "
            "bytes of data; it may be truncated");
  EXPECT_EQ(errorOf({{"a", 2, INT64_MAX - 8, INT64_MAX}}, 8),
            "dir/f: tensor \"a\" has data_offsets 9223372036854775799 to "
            "9223372036854775807 when the file has 8 bytes of data; it may be "
            "truncated");
  EXPECT_EQ(errorOf({{"a", 3, 0, 8}}, 8),
            "dir/f: tensor \"a\" has data_offsets 0 to 8 when its dtype and "
            "shape need 12 bytes");
  EXPECT_EQ(errorOf({{"a", 1, 0, 8}}, 8),
            "dir/f: tensor \"a\" has data_offsets 0 to 8 when its dtype and "
            "shape need 4 bytes");
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  EXPECT_EQ(errorOf({{"b", 2, 0, 8}, {"a", 2, 4, 12}}, 12),
            "dir/f: tensors \"b\" and \"a\" overlap at byte 4 of its data");
  EXPECT_EQ(errorOf({{"a", 2, 0, 8}, {"b", 2, 0, 8}}, 8),
            "dir/f: tensors \"a\" and \"b\" overlap at byte 0 of its data");
  EXPECT_EQ(errorOf({{"a", 1, 0, 4}, {"b", 1, 8, 12}}, 12),
            "dir/f: bytes 4 to 8 of its data belong to no tensor");
  EXPECT_EQ(errorOf({{"a", 1, 4, 8}}, 8),
            "dir/f: bytes 0 to 4 of its data belong to no tensor");
  EXPECT_EQ(errorOf({{"a", 1, 0, 4}}, 6),
            "dir/f: bytes 4 to 6 of its data belong to no tensor");
}

//===----------------------------------------------------------------------===//
// The files of a checkpoint
//===----------------------------------------------------------------------===//

/// A file with one tensor of `count` bytes.
static std::string fileWith(const std::string &name, int count = 4) {
  return makeFile("{\"" + name + R"(": {"dtype": "U8", "shape": [)" +
                      std::to_string(count) + R"(], "data_offsets": [0, )" +
                      std::to_string(count) + "]}}",
                  static_cast<size_t>(count));
}

static std::string openError(const std::filesystem::path &dir) {
  return messageOf([&] { openSafetensors(dir); });
}

TEST(StoredTensors, ChooseTheIndexOrTheSingleFile) {
  TempDir dir;
  dir.write("model.safetensors", fileWith("single"));
  dir.write("one", fileWith("shard"));
  using Lines = std::vector<std::string>;
  const auto expect = [&](const std::string &map, const std::string &tensor,
                          const Lines &notes) {
    dir.write("model.safetensors.index.json",
              "{\"weight_map\": {" + map + "}}");
    const StoredTensors tensors = openSafetensors(dir.path());
    EXPECT_EQ(tensors.tensors().size(), 1u) << map;
    EXPECT_TRUE(tensors.find(tensor)) << map;
    EXPECT_EQ(tensors.notes(), notes) << map;
  };
  expect(R"("shard": "one")", "shard",
         {"model.safetensors is not used, because "
          "model.safetensors.index.json names other files, which are all "
          "there"});
  expect(R"("shard": "one", "more": "two")", "single",
         {"model.safetensors.index.json is not used, because its file "
          "\"two\" is missing"});
  expect(R"("single": "model.safetensors")", "single", {});
  expect("", "single", {});
  std::filesystem::remove(dir.path() / "model.safetensors.index.json");
  EXPECT_TRUE(openSafetensors(dir.path()).find("single"));
  EXPECT_TRUE(openSafetensors(dir.path()).notes().empty());
  // The single file is one of several.
  dir.write(
      "model.safetensors.index.json",
      R"({"weight_map": {"shard": "one", "single": "model.safetensors"}})");
  EXPECT_EQ(openSafetensors(dir.path()).tensors().size(), 2u);
  EXPECT_TRUE(openSafetensors(dir.path()).notes().empty());
}

TEST(StoredTensors, ReadsWhatTheIndexNames) {
  TempDir dir;
  // "one" has a "b", too, but the index says "two", and a "c", which the index
  // lacks.
  dir.write("one",
            makeFile(
                R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                    "b": {"dtype": "U8", "shape": [3], "data_offsets": [3, 6]},
                    "c": {"dtype": "U8", "shape": [1], "data_offsets": [6, 7]}})",
                7));
  dir.write("two", fileWith("b", 2));
  dir.write("model-3.safetensors", "not read");
  dir.write("model.safetensors.index.json",
            R"({"metadata": {}, "weight_map": {"a": "one", "b": "two"}})");
  StoredTensors opened = openSafetensors(dir.path());
  // The mappings move with it.
  const StoredTensors tensors = std::move(opened);
  EXPECT_EQ(tensors.directory(), dir.path());
  EXPECT_EQ(tensors.tensors().size(), 3u);
  const StoredTensor *a = tensors.find("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->path, dir.string() + "/one");
  ASSERT_EQ(a->bytes.size(), 3u);
  EXPECT_EQ(a->bytes[2], 2);
  EXPECT_EQ(tensors.find("b")->path, dir.string() + "/two");
  EXPECT_EQ(tensors.find("c")->path, dir.string() + "/one");
  EXPECT_EQ(tensors.notes(), std::vector<std::string>{
                                 "tensors that model.safetensors.index.json "
                                 "places in another file are not used: "
                                 "\"b\" of one"});
}

TEST(StoredTensors, RefusesIndexes) {
  TempDir dir;
  const std::string index = dir.string() + "/model.safetensors.index.json";
  const auto errorOfIndex = [&](std::string_view text) {
    dir.write("model.safetensors.index.json", text);
    return openError(dir.path());
  };
  dir.write("one", fileWith("a"));
  EXPECT_EQ(errorOfIndex("{"),
            index + " is not JSON: it ends too early, at column 2");
  EXPECT_EQ(errorOfIndex("[]"),
            index + " has an array when a JSON object is needed");
  EXPECT_EQ(errorOfIndex("{}"), index + " has no weight_map");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": 1})"),
            index + ": weight_map is 1 when an object is needed");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": null}})"),
            index + ": the file of tensor \"a\" is null when a name is needed");
  for (const char *name : {"", ".", "..", "../one", "/etc/passwd", "a/b",
                           "..\\\\one", "o\\u0000ne"})
    EXPECT_EQ(errorOfIndex(std::string(R"({"weight_map": {"a": ")") + name +
                           R"("}})"),
              index + ": the file of tensor \"a\" is \"" + name +
                  "\" when the plain name of a file is needed");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": "two"}})"),
            "cannot read " + dir.string() + "/two: No such file or directory");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": "one", "b": "one"}})"),
            index + ": tensor \"b\" is not in one");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": "one"}})"), "");
}

TEST(StoredTensors, RefusesFolders) {
  TempDir dir;
  dir.write("file", "");
  EXPECT_EQ(openError(dir.path() / "none"),
            dir.string() + "/none does not exist: a Hugging Face folder or a "
                           "GGUF file is needed");
  EXPECT_EQ(openError(dir.path() / "file"),
            dir.string() + "/file is not a folder: a Hugging Face folder or a "
                           "GGUF file is needed");
  EXPECT_EQ(openError(dir.path()), dir.string() +
                                       " has neither model.safetensors nor "
                                       "model.safetensors.index.json");
  dir.write("model.safetensors", "");
  EXPECT_EQ(openError(dir.path()),
            dir.string() +
                "/model.safetensors has 0 bytes when a safetensors file starts "
                "with 8 for the length of its header");
}

TEST(StoredTensors, RefusesWhatIsNotAFile) {
  TempDir folder;
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  EXPECT_EQ(openError(folder.path()), "cannot read " + folder.string() +
                                          "/model.safetensors: it is not a "
                                          "file");
  TempDir pipe;
  ASSERT_EQ(mkfifo((pipe.path() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(openError(pipe.path()), "cannot read " + pipe.string() +
                                        "/model.safetensors: it is not a file");
}

namespace {
/// Becomes a user without rights, because root can read every file.
class PlainUser {
public:
  PlainUser() {
    if (geteuid() == 0)
      changed = seteuid(65534) == 0;
  }
  ~PlainUser() {
    if (changed)
      std::ignore = seteuid(0);
  }

private:
  bool changed = false;
};
} // namespace

TEST(StoredTensors, RefusesWhatIsUnreadable) {
  TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  dir.write("model.safetensors", fileWith("a"));
  std::filesystem::permissions(dir.path() / "model.safetensors",
                               std::filesystem::perms::none);
  const auto error = [&] {
    PlainUser user;
    return openError(dir.path());
  };
  EXPECT_EQ(error(), "cannot read " + dir.string() +
                         "/model.safetensors: Permission denied");
  std::filesystem::permissions(dir.path(), std::filesystem::perms::none);
  EXPECT_EQ(error(), "cannot read " + dir.string() + ": Permission denied");
  std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
}
