//===- CompilerRunTest.cpp - Finding and running qwen-opt -----------------===//

#include "CompilerProgram.h"

#include "TempDir.h"

#include <gtest/gtest.h>

#include <csignal>

using namespace qwen;
using namespace qwen::run;

/// A folder with a program qwen-opt.
static void addCompiler(const std::filesystem::path &folder,
                        std::filesystem::perms mode) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "qwen-opt") << "#!/bin/sh\n";
  std::filesystem::permissions(folder / "qwen-opt", mode);
}

TEST(CompilerRun, FindsItBesideTheProgramAndInPath) {
  using std::filesystem::perms;
  const test::TempDir dir;
  const char *variable = getenv("PATH");
  const std::string before = variable ? variable : "";
  const auto a = dir.path() / "a", b = dir.path() / "b", c = dir.path() / "c";
  addCompiler(a, perms::owner_read);
  addCompiler(b, perms::owner_all);
  addCompiler(c, perms::owner_all);
  // Neither an empty folder, nor this one, nor one of files that do not run.
  const std::string path = "::.:" + a.string() + "/none:" + a.string() + ":" +
                           b.string() + ":" + c.string();
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(findCompiler(a), (b / "qwen-opt").string());
  EXPECT_EQ(findCompiler(c), (c / "qwen-opt").string());
  EXPECT_EQ(findCompiler(""), (b / "qwen-opt").string());
  setenv("PATH", "", 1);
  EXPECT_EQ(findCompiler(a), std::nullopt);
  setenv("PATH", before.c_str(), 1);
  EXPECT_TRUE(std::filesystem::exists(programFolder()));
}

TEST(CompilerRun, GivesLinesAndTheStatus) {
  std::vector<std::string> output, errors;
  const ProgramStreams streams = {
      [&](std::string_view line) { output.emplace_back(line); },
      [&](std::string_view line) { errors.emplace_back(line); }};
  const auto shell = [&](const char *script) {
    return runProgram("/bin/sh", {"-c", script, "sh", "a b"}, streams);
  };
  EXPECT_EQ(shell("echo \"$1\"; echo; echo err >&2; printf last; cat; exit 3"),
            3);
  EXPECT_EQ(output, (std::vector<std::string>{"a b", "", "last"}));
  EXPECT_EQ(errors, std::vector<std::string>{"err"});
  EXPECT_EQ(shell("kill -TERM $$"), 128 + SIGTERM);
  // More than a pipe holds, of both streams.
  output.clear();
  EXPECT_EQ(shell("seq 1 40000; seq 1 40000 >&2"), 0);
  EXPECT_EQ(output.size(), 40000u);
  EXPECT_EQ(errors.size(), 40001u);
  EXPECT_EQ(runProgram("/bin/sh", {"-c", "exit 7"}), 7);
}

TEST(CompilerRun, Errors) {
  EXPECT_EQ(test::messageOf([] { runProgram("/nonexistent", {}); }),
            "cannot run /nonexistent: No such file or directory");
  // What a function throws ends the program.
  EXPECT_EQ(test::messageOf([] {
              runProgram("/bin/sh", {"-c", "echo; exec sleep 1000"},
                         {[](std::string_view) { throw Error("stop"); }});
            }),
            "stop");
}
