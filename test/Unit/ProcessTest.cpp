//===- ProcessTest.cpp - Signals, mapped files and temporary files --------===//

#include "TempDir.h"
#include "artifact/File.h"
#include "engine/ThreadPool.h"

#include "qwen/Support/Process.h"
#include "qwen/Support/TemporaryFile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
class ProcessTest : public testing::Test {
protected:
  void SetUp() override { dir.write("model", std::string(100'000, 'x')); }

  /// The files of the folder except the model.
  std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(dir.path()))
      if (entry.path() != dir.path() / "model")
        names.push_back(entry.path().filename());
    return names;
  }

  TempDir dir;
  const std::string model = (dir.path() / "model").string();
  const std::string output = (dir.path() / "output").string();
};

const volatile uint8_t *mapped;

void readInOtherThread(const Context *, int32_t thread, int32_t) {
  if (thread == 1)
    (void)mapped[0];
}

/// Truncates `path` while it is mapped and `output` is written, and runs
/// `read`.
template <typename FnType>
void readTruncated(const std::string &path, const std::string &output,
                   FnType read) {
  prepareProcess("tool");
  const File file(path);
  const Mapping map = Mapping::file(file, 0, file.size(), 0);
  mapped = map.data();
  const TemporaryFile temporary(output);
  if (truncate(path.c_str(), 0) == 0)
    read();
}
} // namespace

TEST_F(ProcessTest, NamesATruncatedFile) {
  EXPECT_EXIT(readTruncated(model, output, [] { (void)mapped[0]; }),
              testing::ExitedWithCode(1),
              "^tool: " + model +
                  " was truncated or cannot be read while it is in use\n$");
  EXPECT_EQ(others(), std::vector<std::string>());
}

TEST_F(ProcessTest, NamesATruncatedFileThatAnotherThreadReads) {
  EXPECT_EXIT(readTruncated(model, output,
                            [] {
                              ThreadPool pool(2);
                              Context context = {};
                              pool.bind(context);
                              pool.run(readInOtherThread, context);
                            }),
              testing::ExitedWithCode(1), "^tool: " + model + " was truncated");
  EXPECT_EQ(others(), std::vector<std::string>());
}

TEST_F(ProcessTest, PrintsNoControlCharactersOfAPath) {
  const std::string odd = model + "\x1b[1m\n";
  std::filesystem::rename(model, odd);
  EXPECT_EXIT(readTruncated(odd, output, [] { (void)mapped[0]; }),
              testing::ExitedWithCode(1),
              "model\\\\u001b\\[1m\\\\n was truncated");
}

TEST_F(ProcessTest, OtherFaultsKillTheProgram) {
  // An emulator prints the signal of its program.
  EXPECT_EXIT(readTruncated(model, output, [] { raise(SIGBUS); }),
              testing::KilledBySignal(SIGBUS), "^(qemu: .*)?$");
  // A range that is no longer mapped does not count.
  EXPECT_EXIT(
      {
        {
          const MappedRange range(model.data(), model.size(), "range");
        }
        endOnFileFault(model.data());
        _exit(7);
      },
      testing::ExitedWithCode(7), "^$");
}

TEST_F(ProcessTest, SignalsRemoveTheTemporaryFile) {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    dir.write("model", "whole");
    EXPECT_EXIT(readTruncated(model, output, [=] { raise(number); }),
                testing::KilledBySignal(number), "^$");
    EXPECT_EQ(others(), std::vector<std::string>());
  }
}

TEST_F(ProcessTest, ATemporaryFileGetsItsNameOnceItIsWhole) {
  for (const char *text : {"one", "two"}) {
    TemporaryFile file(output);
    EXPECT_EQ(others().size(), text[0] == 'o' ? 1u : 2u);
    EXPECT_EQ(writeAll(file.descriptor(), text, 3), 0);
    file.commit();
    std::ifstream stream(output);
    std::string found;
    stream >> found;
    EXPECT_EQ(found, text);
    EXPECT_EQ(others(), std::vector<std::string>{"output"});
  }
}

TEST_F(ProcessTest, RefusesWhatCannotBeWritten) {
  const auto error = [](const std::string &path) {
    return messageOf([&] { const TemporaryFile file(path); });
  };
  EXPECT_EQ(error(""), "cannot write '': the name of a file is needed");
  EXPECT_EQ(error(dir.string()), "cannot write '" + dir.string() +
                                     "': it is a folder; name a file in it");
  EXPECT_EQ(error(dir.string() + "/none/file"),
            "cannot write '" + dir.string() +
                "/none/file': No such file or directory");
  EXPECT_EQ(error(model + "/file"),
            "cannot write '" + model + "/file': Not a directory");
  EXPECT_EQ(others(), std::vector<std::string>());
}
