//===- CacheTest.cpp - The cache of compiled models -----------------------===//

#include "cache/CacheFolder.h"
#include "cache/Fingerprint.h"
#include "cache/ModelSource.h"

#include "CommandLine.h"
#include "CompileOptions.h"
#include "TempDir.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

using namespace qwen;
using namespace qwen::run;
using test::TempDir;

static std::string digits(const std::filesystem::path &path) {
  Fingerprint hash;
  hash.addFile("a", path);
  return hash.digits();
}

TEST(FingerprintTest, SeesBothEndsAndSamples) {
  const TempDir dir;
  const auto path = dir.path() / "file";
  const size_t size = size_t{8} << 20;
  const auto digitsWith = [&](size_t at, size_t count) {
    std::string bytes(size, 'x');
    bytes.replace(at, count, count, 'y');
    dir.write("file", bytes);
    const timespec times[] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
    return digits(path);
  };
  const std::string before = digitsWith(0, 0);
  EXPECT_EQ(digitsWith(0, 0), before);
  EXPECT_NE(digitsWith(0, 1), before);
  EXPECT_NE(digitsWith(size - 1, 1), before);
  // A change of a fifteenth of the file touches a block.
  EXPECT_NE(digitsWith(size / 2, size / 15 + 8192), before);
  EXPECT_EQ(before.size(), 16u);
  // All of a small file counts, and the time of a change.
  dir.write("file", "abc");
  const std::string small = digits(path);
  dir.write("file", "abd");
  EXPECT_NE(digits(path), small);
}

TEST(FingerprintTest, TellsTextsApart) {
  const auto of = [](const char *one, const char *other) {
    Fingerprint hash;
    hash.add(one);
    hash.add(other);
    return hash.digits();
  };
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("1:", ""), of("", "1:"));
}

namespace {
class CacheFolderTest : public testing::Test {
protected:
  void add(const std::string &stem, size_t bytes, time_t lastUse) {
    const auto file = folder.fileOf(stem);
    dir.write("cache/" + file.filename().string(), std::string(bytes, 0));
    chmod(file.c_str(), 0600);
    const timespec times[] = {{lastUse, 0}, {lastUse, 0}};
    utimensat(AT_FDCWD, file.c_str(), times, 0);
  }
  std::vector<std::string> stems() const {
    std::vector<std::string> result;
    for (const CacheEntry &entry : folder.entries())
      result.push_back(entry.stem);
    return result;
  }

  /// A disk with much room.
  const std::filesystem::space_info roomy = {1000000, 1000000, 1000000};
  const TempDir dir;
  std::string reason;
  CacheFolder folder = *CacheFolder::open(dir.path() / "cache", true, reason);
};
using Names = std::vector<std::string>;
} // namespace

TEST_F(CacheFolderTest, RemovesTheLeastRecentlyUsed) {
  add("b", 100, 20);
  add("a", 100, 30);
  add("c", 100, 10);
  EXPECT_EQ(stems(), (Names{"c", "b", "a"}));
  EXPECT_EQ(folder.makeRoom(roomy, 0, 200, true), Names{"c"});
  EXPECT_EQ(stems().size(), 3u);
  EXPECT_EQ(folder.makeRoom(roomy, 0, 200), Names{"c"});
  folder.touch("b");
  EXPECT_EQ(stems(), (Names{"a", "b"}));
  // 5% of 4000 are 200.
  EXPECT_EQ(folder.makeRoom({4000, 300, 300}, 100), Names());
  EXPECT_EQ(folder.makeRoom({4000, 300, 299}, 100, UINT64_MAX, true),
            Names{"a"});
  EXPECT_EQ(folder.makeRoom({4000, 300, 100}, 100, UINT64_MAX, true),
            (Names{"a", "b"}));
  // All go, but not one that another process compiles.
  const auto lock = folder.lock("a", false);
  EXPECT_FALSE(folder.lock("a", false));
  EXPECT_EQ(folder.makeRoom(roomy, UINT64_MAX / 2), Names{"b"});
  EXPECT_FALSE(folder.remove("a"));
  EXPECT_EQ(stems(), Names{"a"});
}

TEST_F(CacheFolderTest, KeepsRecords) {
  add("a", 100, 30);
  EXPECT_FALSE(folder.record("a"));
  folder.writeRecord("a", {"a model \xff", "--awq", "q4_0 for x", 7, 5, "now"});
  folder.writeRecord("a", {"model", "--awq", "q4_0 for x", 7, 5, ""});
  const CacheRecord record = folder.record("a").value();
  EXPECT_EQ(record.model + record.options + record.summary + record.boot,
            "model--awqq4_0 for x");
  EXPECT_EQ(record.memory + record.tokenBytes, 12u);
  // Another process wrote half of it, or something else.
  for (const char *text : {"{\"model\": \"mo", "[]", "", "{\"model\": 1}"}) {
    dir.write("cache/a.json", text);
    EXPECT_FALSE(folder.record("a")) << text;
  }
}

TEST_F(CacheFolderTest, RemovesRests) {
  add("a", 100, 30);
  folder.writeRecord("a", {});
  folder.writeRecord("b", {});
  add("b.qwen.tmp77", 1, 1);
  folder.removeRests();
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "cache/a.json"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "cache/b.json"));
}

TEST(CompileOptionsTest, AreReadByForm) {
  const Program program("tool", "");
  std::string context;
  program.addText("--context", context);
  std::vector<CompileArgument> arguments;
  addCompileOptions(program, arguments);
  const auto read = [&](std::vector<const char *> words) {
    arguments.clear();
    words.insert(words.begin(), "tool");
    program.parse(static_cast<int>(words.size()), words.data());
    std::string text;
    for (const CompileArgument &argument : arguments)
      text += argument.text() + " ";
    return text;
  };
  EXPECT_EQ(read({"--weights", "q4_0", "--awq", "--calibrate"}),
            "--weights=q4_0 --calibrate --awq ");
  EXPECT_EQ(read({"--calibrate=file", "--lora", "a", "--lora=b=2"}),
            "--lora=a --lora=b=2 --calibrate=file ");
  // The option of the command itself.
  EXPECT_EQ(read({"--context", "7"}), "");
  EXPECT_EQ(context, "7");
  EXPECT_THROW(read({"--weights", "q4_0", "--weights", "q8_0"}), UsageError);
  EXPECT_THROW(read({"--kv"}), UsageError);
}

TEST(ModelSourceTest, NamesOfFilesAreNoNamesOfModels) {
  for (const char *given :
       {"a.qwen", "none/a.qwen", "./a/b", "a/b/c", "/a/b"}) {
    const ModelSource source = findModel(given);
    EXPECT_TRUE(source.isCompiled);
    EXPECT_EQ(source.path, given);
    EXPECT_TRUE(source.files().empty());
  }
}
