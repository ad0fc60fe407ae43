//===- ArtifactTest.cpp - Parts of an artifact ----------------------------===//

#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/Engine.h"

#include "qwen/ABI/KernelABI.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

namespace {
class ArtifactTest : public testing::Test {
protected:
  void SetUp() override { path = HandmadeArtifact().write("artifact.qwen"); }
  void TearDown() override { unlink(path.c_str()); }

  std::string write(const HandmadeArtifact &artifact) {
    return artifact.write("artifact.qwen");
  }

  std::string path;
};
} // namespace

TEST_F(ArtifactTest, OpensWhatWasWritten) {
  const Artifact artifact(path);
  const Manifest &manifest = artifact.manifest();
  EXPECT_EQ(manifest.model.name, "handmade");
  EXPECT_EQ(manifest.model.tokenizerVocab, 37);
  EXPECT_EQ(manifest.kv.pageBytes, 8192);
  ASSERT_EQ(manifest.caches.size(), 1u);
  EXPECT_EQ(manifest.caches[0].kind, CacheKind::Paged);
  EXPECT_EQ(manifest.caches[0].stride(), 8192);
  ASSERT_EQ(manifest.programs.size(), 1u);
  const ProgramInfo &forward = manifest.forward();
  EXPECT_EQ(forward.name, "forward");
  EXPECT_EQ(forward.limits.tokens, 8);
  EXPECT_EQ(forward.limits.rows, 2);
  EXPECT_EQ(forward.arenaBytes, 1024);
  ASSERT_EQ(forward.inputs.size(), 2u);
  EXPECT_EQ(forward.inputs[1].name, "positions");
  EXPECT_EQ(forward.logits()->width, 40);
  EXPECT_EQ(forward.logits()->stride, 48);
  EXPECT_EQ(forward.ops, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(forward.kernels,
            (std::vector<std::vector<std::vector<size_t>>>{{{0}, {0, 0}}}));
  ASSERT_EQ(forward.work.size(), 2u);
  EXPECT_EQ(forward.work[0].kind, OpKind::Linear);
  EXPECT_EQ(forward.work[0].weightBytes, 64);
  EXPECT_EQ(forward.work[0].tokenBytes, 32);
  EXPECT_EQ(forward.work[0].activeBytes, 48);
  ASSERT_EQ(forward.work[0].calls.size(), 1u);
  EXPECT_EQ(forward.work[0].calls[0].macs, 16);
  EXPECT_EQ(forward.work[0].calls[0].positionMacs, 0);
  EXPECT_EQ(forward.work[0].count, kTokensOfCall);
  EXPECT_EQ(forward.work[1].positionBytes, 8);
  ASSERT_EQ(forward.work[1].calls.size(), 1u);
  EXPECT_EQ(forward.work[1].calls[0].kernel, 1);
  EXPECT_EQ(forward.work[1].calls[0].length, 64);
  EXPECT_EQ(forward.work[1].calls[0].queries, 2);
  EXPECT_EQ(forward.work[1].calls[0].calls, 3);
  EXPECT_EQ(forward.work[1].calls[0].pageCalls, 5);
  EXPECT_EQ(forward.work[1].calls[0].positionMacs, 4);
  EXPECT_EQ(forward.work[1].count, kWantedTokens);
  ASSERT_EQ(manifest.tensors.size(), 1u);
  EXPECT_EQ(manifest.tensors[0].shape, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(manifest.weightFormats(), "f32");
  EXPECT_FALSE(manifest.generation.doSample);
  EXPECT_EQ(manifest.generation.topK, 50);
  EXPECT_EQ(manifest.generation.temperature, 1.0);
  EXPECT_EQ(manifest.generation.eosTokenIds, std::vector<int32_t>{36});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(artifact.weights()) % kHugePage,
            HandmadeArtifact::kWeights % kHugePage);
  EXPECT_EQ(artifact.weights()[63], 7);
  EXPECT_TRUE(artifact.tokenizer().empty());
  EXPECT_TRUE(artifact.chatTemplate().empty());
  EXPECT_EQ(artifact.check(), artifact.header().code.size + 64);
  EXPECT_NE(artifact.loadCode().find("forward.test"), nullptr);
}

TEST_F(ArtifactTest, FindsFlippedBytes) {
  HandmadeArtifact artifact;
  artifact.bytes[artifact.header().manifest.offset + 40] ^= 1;
  write(artifact);
  EXPECT_EQ(messageOf([&] { Artifact a(path); }),
            path + " is damaged: the checksum of its manifest does not match");

  artifact = HandmadeArtifact();
  artifact.bytes[artifact.header().weightChecksums.offset] ^= 1;
  write(artifact);
  EXPECT_EQ(messageOf([&] { Artifact a(path); }),
            path + " is damaged: the checksum of its weight checksums does "
                   "not match");

  artifact = HandmadeArtifact();
  artifact.bytes[artifact.header().weights.offset + 5] ^= 1;
  write(artifact);
  const Artifact weights(path);
  EXPECT_EQ(messageOf([&] { weights.check(); }),
            path + " is damaged: the checksum of bytes 0 to 64 of its weights "
                   "does not match; copy the file again or compile the model "
                   "again");

  artifact = HandmadeArtifact();
  artifact.bytes[HandmadeArtifact::kCode] ^= 1;
  write(artifact);
  const Artifact code(path);
  EXPECT_EQ(messageOf([&] { code.check(); }),
            path + " is damaged: the checksum of its code does not match");
}

namespace {
/// Weights for a check on a thread; `damaged` has its last byte flipped.
class WeightCheckTest : public ArtifactTest {
protected:
  void SetUp() override {
    HandmadeArtifact large;
    large.resizeWeights((9 << 20) + 5);
    path = write(large);
    large.bytes.back() ^= 4;
    damaged = large.write("damaged.qwen");
    error = damaged +
            " is damaged: the checksum of bytes 9437184 to 9437189 of its "
            "weights does not match; copy the file again or compile the model "
            "again";
  }
  void TearDown() override {
    unlink(damaged.c_str());
    ArtifactTest::TearDown();
  }

  static void runToken(Engine &engine) {
    const Token token = {1, engine.state().open(), 0, true};
    engine.forward({&token, 1}, [](size_t, std::span<float>) {});
  }

  std::string damaged, error;
};
} // namespace

TEST_F(WeightCheckTest, TheThreadFindsDamage) {
  const Artifact artifact(damaged);
  const WeightChecker checker(artifact);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string found;
  while (found.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    found = messageOf([&] { checker.throwIfDamaged(); });
  }
  EXPECT_EQ(found, error);
}

TEST_F(WeightCheckTest, FinishChecksTheRest) {
  const Artifact good(path), bad(damaged);
  WeightChecker checker(good);
  const uint64_t left = checker.finish([] { return true; });
  EXPECT_LE(left, 10u);
  EXPECT_EQ(checker.finish([] { return true; }), left);
  EXPECT_EQ(checker.finish(), 0u);
  checker.throwIfDamaged();
  WeightChecker other(bad);
  EXPECT_EQ(messageOf([&] { other.finish(); }), error);
}

TEST_F(WeightCheckTest, AnEngineStopsAtDamage) {
  const Artifact artifact(damaged);
  ThreadPool pool(1);
  Engine engine(artifact, pool);
  EXPECT_EQ(messageOf([&] { engine.finishCheck(); }), error);
  EXPECT_EQ(messageOf([&] { runToken(engine); }), error);
  EXPECT_EQ(messageOf([&] { engine.finishCheck(); }), error);
  EXPECT_EQ(
      messageOf([&] { Engine(artifact, pool, {.check = WeightCheck::Now}); }),
      error);
  Engine unchecked(artifact, pool, {.check = WeightCheck::Off});
  runToken(unchecked);
  EXPECT_EQ(unchecked.finishCheck(), 0u);
}

TEST_F(WeightCheckTest, FewWeightsNeedNoThread) {
  HandmadeArtifact few;
  few.bytes.back() ^= 1;
  write(few);
  const Artifact artifact(path);
  const WeightChecker checker(artifact);
  EXPECT_NE(messageOf([&] { checker.throwIfDamaged(); }), "");
}

TEST_F(WeightCheckTest, AForkedChildCanEndTheChecker) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "to ThreadSanitizer the thread still runs in the child";
#endif
  const Artifact artifact(path);
  std::optional<WeightChecker> checker(std::in_place, artifact);
  const pid_t child = fork();
  if (child == 0) {
    checker.reset();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(UsableCheck, NeedsMemoryForTheFile) {
  using enum WeightCheck;
  EXPECT_EQ(usableCheck(Background, UINT64_MAX), Off);
  EXPECT_EQ(usableCheck(Now, UINT64_MAX), Now);
  EXPECT_EQ(usableCheck(Background, 0), Background);
}

TEST_F(ArtifactTest, ChecksTokenizerAndTemplate) {
  for (FileRange ArtifactHeader::*range :
       {&ArtifactHeader::tokenizer, &ArtifactHeader::chatTemplate}) {
    HandmadeArtifact artifact;
    artifact.header().*range = artifact.header().manifest;
    artifact.seal();
    write(artifact);
    EXPECT_EQ(messageOf([&] { Artifact a(path); }), "");
    (range == &ArtifactHeader::tokenizer
         ? artifact.header().tokenizerChecksum
         : artifact.header().chatTemplateChecksum) ^= 1;
    artifact.sealHeader();
    write(artifact);
    EXPECT_EQ(messageOf([&] { Artifact a(path); }),
              path + " is damaged: the checksum of its " +
                  (range == &ArtifactHeader::tokenizer ? "tokenizer"
                                                       : "chat template") +
                  " does not match");
  }
}

TEST_F(ArtifactTest, RefusesKernelsWithoutAModel) {
  HandmadeArtifact artifact;
  artifact.header().manifest.size = 0;
  artifact.seal();
  write(artifact);
  EXPECT_EQ(messageOf([&] { Artifact a(path); }),
            path + " holds kernels and no model");
}

TEST_F(ArtifactTest, NamesTheFeaturesThatThisMachineLacks) {
  const Artifact artifact(path);
  const Arch arch = hostArch();
  const bool x86 = arch == Arch::X86_64;
  EXPECT_EQ(artifact.selectTarget(arch, hostFeatures()).name, "test");
  EXPECT_EQ(messageOf([&] { artifact.selectTarget(arch, {}); }),
            path +
                " was compiled for CPU features that this machine lacks: test "
                "needs " +
                (x86 ? "avx2" : "neon") +
                "; recompile the model with qwen-opt --target native here");
  EXPECT_EQ(messageOf([&] {
              artifact.selectTarget(x86 ? Arch::AArch64 : Arch::X86_64, {});
            }),
            path + " was compiled for " + (x86 ? "x86-64" : "aarch64") +
                " and this machine is " + (x86 ? "aarch64" : "x86-64") +
                "; recompile the model with qwen-opt --target");
}

TEST_F(ArtifactTest, SelectsTheFirstTargetThatRuns) {
  const bool x86 = hostArch() == Arch::X86_64;
  const CpuFeature least = x86 ? CpuFeature::AVX2 : CpuFeature::NEON;
  const CpuFeature newer = x86 ? CpuFeature::AVX512F : CpuFeature::SVE;
  const CpuFeature newest = x86 ? CpuFeature::AVX512VNNI : CpuFeature::I8MM;
  json manifest = json::parse(handmadeManifest());
  manifest["targets"] = json::array();
  const std::pair<const char *, CpuFeatureSet> targets[] = {
      {"c", {newest}}, {"b", {least, newer}}, {"a", {least}}};
  for (const auto &[name, features] : targets)
    manifest["targets"].push_back({{"name", name},
                                   {"arch", archName(hostArch())},
                                   {"features", features.names()},
                                   {"kernels", json::array()}});
  for (json &work : manifest["programs"][0]["work"])
    work.erase("calls");
  const json none = json::array({json::array(), json::array()});
  manifest["programs"][0]["kernels"] = {none, none, none};
  write(HandmadeArtifact(manifest.dump()));
  const Artifact artifact(path);
  const auto select = [&](CpuFeatureSet features) {
    return artifact.selectTarget(hostArch(), features).name;
  };
  EXPECT_EQ(select({least}), "a");
  EXPECT_EQ(select({least, newer}), "b");
  EXPECT_EQ(select({least, newer, newest}), "c");
  EXPECT_EQ(select({newest}), "c");
  // All targets, each with the features that it lacks here.
  const auto name = [](CpuFeature feature) {
    return std::string(featureName(feature));
  };
  EXPECT_EQ(messageOf([&] { select({newer}); }),
            path +
                " was compiled for CPU features that this machine lacks: c "
                "needs " +
                name(newest) + "; b needs " + name(least) + "; a needs " +
                name(least) +
                "; recompile the model with qwen-opt --target native here");
  EXPECT_EQ(artifact.manifest().bestTarget(hostArch(), {newer}), nullptr);
  EXPECT_EQ(artifact.manifest().bestTarget(x86 ? Arch::AArch64 : Arch::X86_64,
                                           {least, newer, newest}),
            nullptr);
}

TEST_F(ArtifactTest, RefusesTargetsOfAnotherArchitecture) {
  const bool x86 = hostArch() == Arch::X86_64;
  json manifest = json::parse(handmadeManifest());
  manifest["targets"][0]["arch"] = x86 ? "aarch64" : "x86-64";
  manifest["targets"][0]["features"] = json::array();
  write(HandmadeArtifact(manifest.dump()));
  EXPECT_EQ(messageOf([&] { Artifact a(path); }),
            path + " is damaged: its manifest says " +
                (x86 ? "aarch64" : "x86-64") +
                " and its header another architecture");
}
