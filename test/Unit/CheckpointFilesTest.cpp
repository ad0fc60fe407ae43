//===- CheckpointFilesTest.cpp - What stands in the place of a file -------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
namespace fs = std::filesystem;

static const fs::path kInputs = fs::path(QWEN_SOURCE_DIR) / "test/Inputs";

/// The files of a folder that the compiler may read, each alone in its turn.
static const char *const kFiles[] = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00005.safetensors",
    "model-00005-of-00005.safetensors",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "qwen.tiktoken",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
};

/// Like the version that git-lfs writes, for a file of 7 bytes.
static constexpr const char *kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:"
    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 7\n";

namespace {
/// A folder of links to the files of a checkpoint in shards, with a tokenizer.
class CheckpointFiles : public testing::Test {
protected:
  CheckpointFiles() {
    for (const auto &entry : fs::directory_iterator(
             kInputs / "checkpoints/qwen2-untied-bf16-sharded"))
      fs::create_symlink(entry.path(), dir.path() / entry.path().filename());
    dir.write("qwen.tiktoken", "YQ== 0\nYg== 1\n");
  }

  std::string error(const fs::path &path) const {
    return messageOf([&] { openCheckpoint(path)->readTokenizer(); });
  }

  const TempDir dir;
};
} // namespace

TEST_F(CheckpointFiles, MayBeLinks) {
  EXPECT_EQ(error(dir.path()), "");
  fs::create_directory_symlink(dir.path(), dir.path() / "link");
  EXPECT_EQ(error(dir.path() / "link"), "");
}

TEST_F(CheckpointFiles, AreNamedWhenSomethingElseIsThere) {
  struct Case {
    void (*put)(const fs::path &);
    std::string why;
  };
  const std::string lfs = "it is a Git LFS pointer, not the file itself; run "
                          "\"git lfs pull\" in its folder";
  const Case cases[] = {
      {[](const fs::path &path) { fs::create_symlink("../blobs/1\x1b", path); },
       "it is a symbolic link to \"../blobs/1\\u001b\", where there is "
       "nothing; download the file again, or copy the checkpoint with the "
       "files that its links lead to (cp -L)"},
      {[](const fs::path &path) { std::ofstream(path) << kPointer; }, lfs},
      {[](const fs::path &path) {
         std::ofstream(path) << "version https://hawser.github.com/spec/v1\n";
       },
       lfs},
      {[](const fs::path &path) { fs::create_directory(path); },
       "it is not a file"},
      {[](const fs::path &path) { fs::create_symlink(path, path); },
       "Too many levels of symbolic links"},
  };
  for (const char *name : kFiles) {
    const fs::path path = dir.path() / name, kept = dir.path() / "kept";
    const bool was = fs::exists(path);
    if (was)
      fs::rename(path, kept);
    for (const Case &other : cases) {
      other.put(path);
      EXPECT_EQ(error(dir.path()),
                "cannot read " + path.string() + ": " + other.why);
      fs::remove_all(path);
    }
    if (was)
      fs::rename(kept, path);
  }
}

TEST_F(CheckpointFiles, AreNamedWhereTheyAreGguf) {
  const fs::path first = dir.path() / "m-00001-of-00003.gguf";
  const fs::path second = dir.path() / "m-00002-of-00003.gguf";
  for (const fs::path &file : {first, second}) {
    fs::remove(first);
    fs::remove(second);
    const fs::path parts = kInputs / "gguf/qwen3-split";
    if (file == second)
      fs::create_symlink(parts / "model-00001-of-00003.gguf", first);
    fs::create_symlink("none", file);
    EXPECT_EQ(error(first),
              "cannot read " + file.string() +
                  ": it is a symbolic link to \"none\", where there is "
                  "nothing; download the file again, or copy the checkpoint "
                  "with the files that its links lead to (cp -L)");
    fs::remove(file);
    std::ofstream(file) << kPointer;
    EXPECT_EQ(error(first), "cannot read " + file.string() +
                                ": it is a Git LFS pointer, not the file "
                                "itself; run \"git lfs pull\" in its folder");
  }
}
