//===- Bandwidth.cpp - How fast this machine reads a model ----------------===//
//
// Decoding reads all weights for each token, so memory bandwidth limits it. The
// limit is measured on the artifact's own mapping, with the advice (madvise)
// and the number of threads that decoding has.
//
//===----------------------------------------------------------------------===//

#include "Bench.h"
#include "MemorySpeed.h"
#include "Output.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sys/mman.h>

using namespace qwen;
using namespace qwen::run;
using Clock = std::chrono::steady_clock;

/// Bytes of the mapping at `base` in huge memory pages, from smaps.
static uint64_t hugeBytes(const uint8_t *base) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  uint64_t kilobytes = 0;
  while (std::getline(maps, line)) {
    char *end;
    const uint64_t start = strtoull(line.c_str(), &end, 16);
    if (*end == '-')
      inside = start == reinterpret_cast<uintptr_t>(base);
    else if (inside && (line.starts_with("FilePmdMapped:") ||
                        line.starts_with("AnonHugePages:")))
      kilobytes += strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
  }
  return kilobytes * 1024;
}

namespace {
/// Bytes a second.
struct Measurements {
  /// For each pattern, one number for each repetition.
  std::vector<std::vector<double>> reads;
  /// One number for each token.
  std::vector<double> decode;
};
} // namespace

/// Reads and decoded tokens alternate, and each is one measurement, because the
/// bandwidth of a shared machine changes within a second.
static Measurements measure(const BenchCommand &command,
                            const Artifact &artifact, Engine &engine,
                            const std::vector<ReadPattern> &all) {
  const Manifest &manifest = artifact.manifest();
  const SequenceId sequence = engine.state().open();
  const auto nothing = [](size_t, std::span<float>) {};
  const auto decode = [&](int64_t position) {
    const Token token = {benchToken(manifest, position), sequence, position,
                         true};
    engine.forward({&token, 1}, nothing);
  };
  Measurements result;
  result.reads.resize(all.size());
  const int64_t tokens = std::min(command.count, manifest.model.context - 1);
  // A token reads and writes all fixed state.
  const uint64_t constantBytes =
      manifest.tokenWeightBytes() +
      2 * static_cast<uint64_t>(bytesOf(manifest.caches, CacheKind::Fixed));
  for (int64_t repetition = 0; repetition < command.repetitions; ++repetition) {
    for (size_t i = 0; i < all.size(); ++i)
      result.reads[i].push_back(readSpeed(all[i], artifact.weights(),
                                          artifact.header().weights.size,
                                          engine.threads()));
    engine.state().truncate(sequence, 0);
    // Warms caches and branch predictors.
    decode(0);
    for (int64_t i = 1; i <= tokens; ++i) {
      const auto start = Clock::now();
      decode(i);
      const double seconds = secondsSince(start);
      const auto bytes = constantBytes + static_cast<uint64_t>(
                                             manifest.kv.tokenBytes * (i + 1));
      result.decode.push_back(static_cast<double>(bytes) / seconds);
    }
  }
  return result;
}

/// The best median of reads of `size` bytes of anonymous memory in small pages.
/// It checks the measurement, for this memory must not be faster.
static double smallPageSpeed(const BenchCommand &command, size_t size,
                             int32_t threads,
                             const std::vector<ReadPattern> &all) {
  const Mapping anonymous = Mapping::memory(size, "a copy of the weights");
  madvise(anonymous.data(), anonymous.size(), MADV_NOHUGEPAGE);
  memset(anonymous.data(), 1, anonymous.size());
  double best = 0;
  for (const ReadPattern &pattern : all) {
    std::vector<double> speeds(static_cast<size_t>(command.repetitions));
    for (double &speed : speeds)
      speed = readSpeed(pattern, anonymous.data(), size, threads);
    best = std::max(best, summary(speeds).median);
  }
  return best;
}

namespace {
/// What is printed. Speeds are bytes a second.
struct BandwidthFigures {
  JsonText toJson() const;
  /// For a terminal.
  std::string toText(int64_t repetitions, size_t tokens) const;
  double decodeShare() const { return decode.median / best; }
  double fastestShare() const { return decode.greatest / fastestRead; }

  int32_t threads;
  uint64_t weightBytes, hugeBytes;
  const std::vector<ReadPattern> &patterns;
  /// By pattern.
  std::vector<Summary> reads;
  double best = 0, fastestRead = 0, smallPages;
  Summary decode;
};
} // namespace

JsonText BandwidthFigures::toJson() const {
  std::vector<JsonText> all;
  all.reserve(patterns.size());
  for (size_t i = 0; i < patterns.size(); ++i)
    all.push_back(jsonObject({{"streams", patterns[i].streams},
                              {"prefetch_bytes", patterns[i].distance},
                              {"bytes_per_second", reads[i].toJson()}}));
  return jsonObject({{"threads", threads},
                     {"weight_bytes", weightBytes},
                     {"weight_bytes_in_huge_pages", hugeBytes},
                     {"patterns", jsonArray(all)},
                     {"best_bytes_per_second", best},
                     {"fastest_read_bytes_per_second", fastestRead},
                     {"small_pages_bytes_per_second", smallPages},
                     {"decode_bytes_per_second", decode.toJson()},
                     {"decode_share", decodeShare()},
                     {"fastest_decode_share", fastestShare()}});
}

std::string BandwidthFigures::toText(int64_t repetitions, size_t tokens) const {
  constexpr double kGB = 1e9, kMiB = 1024 * 1024;
  char line[160];
  std::string text;
  const auto print = [&](const char *format, auto... values) {
    snprintf(line, sizeof(line), format, values...);
    text += line;
  };
  print("%d threads, %.1f MiB of weights, %.1f MiB of them in huge pages\n",
        threads, static_cast<double>(weightBytes) / kMiB,
        static_cast<double>(hugeBytes) / kMiB);
  text += "GB/s by streams:      1      2      4      8\n";
  const auto read = [&](size_t i) { return reads[i].median / kGB; };
  for (size_t i = 0; i < reads.size(); i += 4)
    print("prefetch %4zu bytes %6.1f %6.1f %6.1f %6.1f\n",
          static_cast<size_t>(patterns[i].distance), read(i), read(i + 1),
          read(i + 2), read(i + 3));
  print("best     %.1f GB/s; %.1f GB/s of anonymous pages of %zu bytes\n",
        best / kGB, smallPages / kGB, pageSize());
  print("decode   %.1f GB/s, %.1f%% of the best; medians of %lld and %zu\n",
        decode.median / kGB, 100 * decodeShare(),
        static_cast<long long>(repetitions), tokens);
  print("fastest  %.1f GB/s read, %.1f GB/s decoded, %.1f%%\n",
        fastestRead / kGB, decode.greatest / kGB, 100 * fastestShare());
  return text;
}

void qwen::run::bandwidth(const BenchCommand &command) {
  Model model(command.file.path());
  const Artifact &artifact = model.artifact();
  const std::unique_ptr<Engine> started =
      command.start(model, command.options(model));
  Engine &engine = *started;
  const size_t size = artifact.header().weights.size;
  if (size == 0)
    throw Error(command.file.path() + " has no weights to read");

  const std::vector<ReadPattern> all = readPatterns();
  const Measurements measured = measure(command, artifact, engine, all);
  finishCheck(model, engine);
  BandwidthFigures figures = {
      .threads = engine.threads(),
      .weightBytes = size,
      .hugeBytes = hugeBytes(artifact.weights()),
      .patterns = all,
      .reads = {},
      .smallPages = smallPageSpeed(command, size, engine.threads(), all),
      .decode = summary(measured.decode)};
  for (const std::vector<double> &speeds : measured.reads) {
    const Summary speed = figures.reads.emplace_back(summary(speeds));
    figures.best = std::max(figures.best, speed.median);
    figures.fastestRead = std::max(figures.fastestRead, speed.greatest);
  }
  if (command.json)
    writeJson(figures.toJson(), 2);
  else
    writeOut(figures.toText(command.repetitions, measured.decode.size()));
}
