//===- CompilerTest.cpp - The compiler as a library -----------------------===//

#include "qwen/Compiler/Compiler.h"

#include "TempDir.h"
#include "artifact/Artifact.h"
#include "engine/Engine.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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
  // What a caller's function throws becomes Error, too.
  const auto check = [](auto &&...) { std::filesystem::current_path("/none"); };
  EXPECT_THROW(
      compileModel(kCheckpoint, output, {.maxTokens = 16}, {.check = check}),
      Error);
  EXPECT_FALSE(output.isCommitted);
}

/// The Error about a compile, which compiles nothing.
static Error errorOf(const std::filesystem::path &checkpoint,
                     const CompileOptions &options = {}) {
  MemoryFile file;
  try {
    compileModel(checkpoint, file, options);
  } catch (const Error &error) {
    return error;
  }
  return Error("no error");
}

TEST(Compiler, ErrorsHaveFields) {
  unsetenv("TMPDIR");
  const test::TempDir dir;
  const auto fieldsOf = [](const Error &error) {
    const auto &[file, subject, found, needed] = error.fields();
    // Each is a part of the line.
    for (const std::string &field : {file, subject, found, needed})
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos)
          << error.what() << ": " << field;
    return std::vector<std::string>{file, subject, found, needed};
  };
  using Fields = std::vector<std::string>;
  EXPECT_EQ(
      fieldsOf(errorOf("/nonexistent")),
      (Fields{"/nonexistent", "", "", "a Hugging Face folder or a GGUF file"}));
  EXPECT_EQ(fieldsOf(errorOf(kCheckpoint, {.target = "znver44"})),
            (Fields{"", "znver44", "", ""}));
  EXPECT_EQ(fieldsOf(errorOf(kCheckpoint, {.maxTokens = 1, .maxRows = 2})),
            (Fields{"", "--max-rows", "2", "1"}));
  EXPECT_EQ(fieldsOf(errorOf(kCheckpoint, {.tensorWeights = {"none=f32"}}))[1],
            "--tensor-weights");
  EXPECT_EQ(fieldsOf(errorOf(kCheckpoint, {.ignoredTensors = {"none"}})),
            (Fields{"", "--ignore-tensors", "\"none\"", ""}));

  // The configuration, and a tensor that contradicts it.
  nlohmann::json config =
      nlohmann::json::parse(std::ifstream(kCheckpoint / "config.json"));
  std::filesystem::create_symlink(kCheckpoint / "model.safetensors",
                                  dir.path() / "model.safetensors");
  const std::string path = dir.string() + "/config.json";
  const int64_t vocabulary = config["vocab_size"],
                hidden = config["hidden_size"];
  config["vocab_size"] = vocabulary + 1;
  dir.write("config.json", config.dump());
  const std::string width = ", " + std::to_string(hidden) + "]";
  EXPECT_EQ(
      fieldsOf(errorOf(dir.path())),
      (Fields{dir.string() + "/model.safetensors", "model.embed_tokens.weight",
              "[" + std::to_string(vocabulary) + width,
              "[" + std::to_string(vocabulary + 1) + width}));
  config["vocab_size"] = "many";
  dir.write("config.json", config.dump());
  EXPECT_EQ(fieldsOf(errorOf(dir.path())),
            (Fields{path, "vocab_size", "\"many\"",
                    "an integer from 1 to 2147483647"}));
  config.erase("architectures");
  dir.write("config.json", config.dump());
  EXPECT_EQ(fieldsOf(errorOf(dir.path())),
            (Fields{path, "architectures", "", ""}));

  // A GGUF file that ends after its version.
  dir.write("m.gguf", std::string_view("GGUF\3\0\0\0", 8));
  EXPECT_EQ(
      fieldsOf(errorOf(dir.path() / "m.gguf")),
      (Fields{dir.string() + "/m.gguf", "the number of tensors", "0", "8"}));
}

/// Copies `checkpoint` to the folder "model" of `dir`, whose name is the same
/// for all copies, and writes `files` there by their names.
static std::filesystem::path
copyOf(const std::filesystem::path &checkpoint, const test::TempDir &dir,
       const std::map<std::string, std::string> &files) {
  const std::filesystem::path copy = dir.path() / "model";
  std::filesystem::copy(checkpoint, copy);
  for (const auto &[name, text] : files)
    std::ofstream(copy / name) << text;
  return copy;
}

static std::string compiled(const std::filesystem::path &checkpoint,
                            CompileOptions options) {
  options.maxTokens = 16;
  options.maxRows = 1;
  MemoryFile file;
  compileModel(checkpoint, file, options);
  return file.contents();
}

TEST(Compiler, OptionsScalePositionsAsTheConfigDoes) {
  std::ifstream config(kCheckpoint / "config.json");
  const nlohmann::json plain = nlohmann::json::parse(config);
  const auto bytesOf = [&](const char *scaling,
                           std::optional<RopeScaling> option) {
    const test::TempDir dir;
    nlohmann::json edited = plain;
    edited["rope_scaling"] = nlohmann::json::parse(scaling);
    return compiled(copyOf(kCheckpoint, dir, {{"config.json", edited.dump()}}),
                    {.ropeScaling = option});
  };
  const std::string scaled = bytesOf("null", RopeScaling{4});
  EXPECT_TRUE(scaled == bytesOf(R"({"type": "yarn", "factor": 4.0})", {}));
  EXPECT_FALSE(scaled == bytesOf("null", {}));
  EXPECT_TRUE(bytesOf("null", RopeScaling{8, 128}) ==
              bytesOf(R"({"rope_type": "yarn", "factor": 8.0,
                          "original_max_position_embeddings": 128})",
                      {}));
}

TEST(Compiler, OptionsReplaceTheChatTemplate) {
  const std::filesystem::path stories =
      std::filesystem::path(QWEN_SOURCE_DIR) / "models/stories";
  const std::string text = "{{ messages[0].content }} and another";
  const test::TempDir dir, other;
  dir.write("another.jinja", text);
  const CompileOptions options = {.chatTemplate = dir.path() / "another.jinja"};
  EXPECT_TRUE(
      compiled(copyOf(stories, dir, {}), options) ==
      compiled(copyOf(stories, other, {{"chat_template.jinja", text}}), {}));
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
