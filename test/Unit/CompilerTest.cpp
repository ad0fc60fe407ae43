//===- CompilerTest.cpp - The compiler as a library -----------------------===//

#include "qwen/Compiler/Compiler.h"

#include "artifact/Artifact.h"
#include "engine/Engine.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <map>
#include <thread>

using namespace qwen;

static const std::filesystem::path kCheckpoint =
    std::filesystem::path(QWEN_SOURCE_DIR) /
    "test/Inputs/checkpoints/qwen2-tied-f32";

/// Compiles for short calls, which need a small arena.
static CompileSummary compileInto(WritableFile &output) {
  return compileModel(
      kCheckpoint, output,
      {.weights = WeightFormat::Q4_0, .maxTokens = 16, .maxRows = 1});
}

/// The first token's logits of the model in `file`.
static std::vector<float> logitsOf(const MemoryFile &file) {
  const Artifact artifact(file.path());
  ThreadPool pool(1);
  Engine engine(artifact, pool);
  std::vector<float> logits;
  const SequenceId sequence = engine.state().open();
  engine.forward(std::vector<Token>{{1, sequence, 0, true}},
                 [&](size_t, std::span<float> row) {
                   logits.assign(row.begin(), row.end());
                 });
  return logits;
}

TEST(Compiler, ACallerRunsWhatItCompiledInMemory) {
  // Nothing on disk can be written.
  setenv("TMPDIR", "/nonexistent", 1);
  MemoryFile file, again;
  const CompileSummary summary = compileInto(file);
  EXPECT_EQ(summary.architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(summary.fileBytes, file.contents().size());
  compileInto(again);
  EXPECT_TRUE(file.contents() == again.contents());
  const std::vector<float> logits = logitsOf(file);
  EXPECT_GT(logits.size(), 0u);
  EXPECT_EQ(logits, logitsOf(again));
}

/// The handler of each signal.
static std::map<int, void *> signalHandlers() {
  std::map<int, void *> handlers;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) == 0)
      handlers[number] = reinterpret_cast<void *>(action.sa_handler);
  }
  return handlers;
}

TEST(Compiler, ThreadsShareAProcess) {
  const std::map<int, void *> handlers = signalHandlers();
  MemoryFile files[2];
  {
    std::vector<std::jthread> threads;
    for (MemoryFile &file : files)
      threads.emplace_back([&] { compileInto(file); });
  }
  EXPECT_TRUE(files[0].contents() == files[1].contents());
  EXPECT_EQ(signalHandlers(), handlers);
}

TEST(Compiler, ErrorsCommitNothing) {
  class Watched final : public WritableFile {
  public:
    int descriptor() const override { return file.descriptor(); }
    std::string path() const override { return file.path(); }
    std::string name() const override { return file.name(); }
    void commit() override { isCommitted = true; }

    MemoryFile file;
    bool isCommitted = false;
  } output;
  EXPECT_THROW(compileModel("/nonexistent", output), Error);
  EXPECT_THROW(
      compileModel(kCheckpoint, output, {.maxTokens = 1, .maxRows = 2}), Error);
  EXPECT_THROW(compileModel(kCheckpoint, output, {.maxTokens = 16},
                            {.check = [](auto &&...) { throw Error("no"); }}),
               Error);
  EXPECT_FALSE(output.isCommitted);
}

TEST(Compiler, EmitsModulesAndCode) {
  for (EmittedStage stage : kEmittedStages)
    if (stage < EmittedStage::LLVM)
      EXPECT_NE(emit(kCheckpoint, stage).find("@forward"), std::string::npos)
          << emittedStageName(stage);
  EXPECT_NE(emit(kCheckpoint, EmittedStage::LLVM).find("@forward."),
            std::string::npos);
}

/// KiB of memory of this process that no file backs.
static int64_t anonymousMemory() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    int64_t value = 0;
    if (key == "RssAnon:" && status >> value)
      return value;
  }
  return 0;
}

TEST(Compiler, MemoryStaysLevel) {
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  const int compiles = std::getenv("QWEN_TEST_FULL") ? 50 : 6;
  int64_t third = 0;
  for (int i = 1; i <= compiles; ++i) {
    MemoryFile file;
    compileInto(file);
    if (i == 3)
      third = anonymousMemory();
  }
  ASSERT_GT(third, 0);
  // A leaked module of LLVM would take more than a MiB a compile.
  const int64_t last = anonymousMemory();
  EXPECT_LE(last, third + 4096);
  RecordProperty("third", std::to_string(third) + " KiB");
  RecordProperty("last", std::to_string(last) + " KiB");
}
