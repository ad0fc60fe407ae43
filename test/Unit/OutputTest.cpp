//===- OutputTest.cpp - Outputs, inputs and what is left of killed runs ---===//

#include "TempDir.h"

#include "qwen/Support/InputError.h"
#include "qwen/Support/OutputTarget.h"
#include "qwen/Support/TemporaryFile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;
namespace fs = std::filesystem;

namespace {
class OutputTest : public testing::Test {
protected:
  std::string at(const char *name) const {
    return (dir.path() / name).string();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto &entry : fs::directory_iterator(dir.path()))
      result.push_back(entry.path().filename());
    std::ranges::sort(result);
    return result;
  }
  static std::string error(const std::string &path) {
    return messageOf([&] { const TemporaryFile file(path); });
  }

  TempDir dir;
};
using Names = std::vector<std::string>;
} // namespace

TEST_F(OutputTest, IsNoInputByAnyName) {
  dir.write("input", "whole");
  fs::create_directory(at("folder"));
  fs::create_symlink("input", at("link"));
  fs::create_hard_link(at("input"), at("hard"));
  fs::create_directory_symlink(dir.path(), at("folder/other"));
  noteInput(at("input"));
  noteInput(at("none"));
  EXPECT_EQ(error(at("input")), "cannot write '" + at("input") +
                                    "': it is an input; name another file");
  for (const char *name :
       {"link", "hard", "folder/../input", "folder/other/input"})
    EXPECT_EQ(error(at(name)), "cannot write '" + at(name) +
                                   "': it is the input '" + at("input") +
                                   "'; name another file");
  EXPECT_EQ(names(), (Names{"folder", "hard", "input", "link"}));
  // The other order: the output is there first.
  dir.write("late", "whole");
  {
    const TemporaryFile output(at("late"));
    EXPECT_EQ(messageOf([&] { noteInput(at("folder/../late")); }),
              "cannot write '" + at("late") + "': it is the input '" +
                  at("folder/../late") + "'; name another file");
    EXPECT_FALSE(isInput(at("late")));
  }
  // It stays an error of an output where inputs are read.
  EXPECT_THROW(
      try {
        const OutputTarget output(at("late"));
        noteInput(at("late"));
      } catch (...) { throwInputError(); },
      OutputError);
}

TEST_F(OutputTest, MayReplaceWhatIsNoInputAnyMore) {
  dir.write("first", "1");
  noteInput(at("first"));
  fs::remove(at("first"));
  // Perhaps with the inode of the first one.
  dir.write("second", "2");
  EXPECT_EQ(error(at("second")), "");
  TemporaryFile output(at("second"));
  output.commit();
  noteInput(at("second"));
  EXPECT_TRUE(isInput(at("second")));
}

TEST_F(OutputTest, RemovesWhatKilledRunsLeft) {
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryFile output(at("x"));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(names(), Names{"x.tmp" + std::to_string(child)});
  for (const char *name : {"x.tmp1", "x.tmp2", "x.tmp3", "x.tmp", "x.tmp1a",
                           "y.tmp1", "xx.tmp1", "x.tmp1.old"})
    dir.write(name, "");
  // Another run writes it; a run reads it; it is no file.
  const int other = open(at("x.tmp2").c_str(), O_RDONLY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  noteInput(at("x.tmp3"));
  fs::create_symlink("y.tmp1", at("x.tmp4"));
  fs::create_directory(at("x.tmp5"));
  {
    TemporaryFile output(at("x"));
    output.commit();
  }
  EXPECT_EQ(names(),
            (Names{"x", "x.tmp", "x.tmp1.old", "x.tmp1a", "x.tmp2", "x.tmp3",
                   "x.tmp4", "x.tmp5", "xx.tmp1", "y.tmp1"}));
  close(other);
}

TEST_F(OutputTest, AnotherRunOfTheSameTargetGoesOn) {
  // Its number is that of a process in another container, perhaps.
  const std::string taken = at("x") + ".tmp" + std::to_string(getpid());
  const int other = open(taken.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  TemporaryFile output(at("x"));
  EXPECT_NE(output.path(), taken);
  output.commit();
  EXPECT_TRUE(fs::exists(taken));
  close(other);
}

TEST_F(OutputTest, GoesToPipesInOrder) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  const int reader = open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  TemporaryFile output(at("pipe"));
  EXPECT_TRUE(output.isStream());
  EXPECT_EQ(writeAllAt(output.descriptor(), "end", 3, 3), 0);
  EXPECT_EQ(writeAllAt(output.descriptor(), "the", 3, 0), 0);
  EXPECT_EQ(fs::file_size(output.path()), 6u);
  output.commit();
  char text[8] = {};
  EXPECT_EQ(read(reader, text, sizeof text), 6);
  EXPECT_STREQ(text, "theend");
  close(reader);
  EXPECT_EQ(names(), Names{"pipe"});
}

TEST_F(OutputTest, GoesToStandardOutputThatIsAFile) {
  dir.write("redirected", "before ");
  const int kept = dup(STDOUT_FILENO);
  fflush(stdout);
  const int file = open(at("redirected").c_str(), O_WRONLY | O_APPEND);
  ASSERT_EQ(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
  const std::string message = messageOf([] {
    TemporaryFile output("/dev/stdout");
    (void)writeAll(output.descriptor(), "text", 4);
    output.commit();
  });
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(file);
  EXPECT_EQ(message, "");
  std::string text;
  std::getline(std::ifstream(at("redirected")), text);
  EXPECT_EQ(text, "before text");
}
