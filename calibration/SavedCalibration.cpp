//===- SavedCalibration.cpp - Finished sublayers on disk ------------------===//

#include "calibration/SavedCalibration.h"

#include "calibration/Calibration.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Support/Error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

using namespace qwen;
using numerics::EncodeError;
namespace fs = std::filesystem;

namespace {
/// Before the bytes of a file.
struct Header {
  char kind[8];
  /// The hash of the inputs, and the checksum of the bytes.
  uint64_t hash, checksum;
  uint64_t bytes;
  uint64_t finished;
};
} // namespace

static constexpr char kKind[sizeof(Header::kind)] = "qwenca2";
static constexpr char kRows[] = "rows.qwencal", kState[] = "scales.qwencal",
                      kEnding[] = ".qwencal", kPartial[] = ".tmp";

static fs::path weightPath(const fs::path &folder, size_t number) {
  return folder / ("weight" + std::to_string(number) + kEnding);
}

/// Writes a file under another name first, so that it is complete or absent.
static void write(const fs::path &path, uint64_t hash, size_t finished,
                  std::span<const uint8_t> bytes) {
  Header header = {{},
                   hash,
                   XXH3_64bits(bytes.data(), bytes.size()),
                   bytes.size(),
                   finished};
  std::memcpy(header.kind, kKind, sizeof(kKind));
  const fs::path partial = path.string() + kPartial;
  fs::create_directories(path.parent_path());
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char *>(&header), sizeof(header));
  file.write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    throw Error("cannot write " + part::file(path.string()) + ": " +
                part::found(std::strerror(errno)));
  fs::rename(partial, path);
}

/// Reads the bytes of a file of these inputs. Returns its header, or nothing if
/// it is missing, damaged, or of other inputs.
static std::optional<Header> read(const fs::path &path, uint64_t hash,
                                  std::span<uint8_t> bytes) {
  std::ifstream file(path, std::ios::binary);
  Header header;
  if (!file.read(reinterpret_cast<char *>(&header), sizeof(header)) ||
      std::memcmp(header.kind, kKind, sizeof(kKind)) != 0 ||
      header.hash != hash || header.bytes != bytes.size() ||
      !file.read(reinterpret_cast<char *>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size())) ||
      header.checksum != XXH3_64bits(bytes.data(), bytes.size()))
    return std::nullopt;
  return header;
}

size_t SavedCalibration::load(const char *name, std::span<float> values) const {
  const auto header =
      read(folder / name, hash,
           {reinterpret_cast<uint8_t *>(values.data()), values.size_bytes()});
  return header ? header->finished : 0;
}

void SavedCalibration::save(const char *name, size_t finished,
                            std::span<const float> values) const {
  write(
      folder / name, hash, finished,
      {reinterpret_cast<const uint8_t *>(values.data()), values.size_bytes()});
}

size_t SavedCalibration::loadRows(std::span<float> rows) const {
  return load(kRows, rows);
}

void SavedCalibration::saveRows(size_t finished,
                                std::span<const float> rows) const {
  save(kRows, finished, rows);
}

size_t SavedCalibration::loadState(std::span<float> state) const {
  return load(kState, state);
}

void SavedCalibration::saveState(size_t finished,
                                 std::span<const float> state) const {
  save(kState, finished, state);
}

WeightSourcePtr SavedCalibration::loadWeight(size_t number,
                                             const WeightSource &source,
                                             WeightFormat format,
                                             Place place) const {
  auto integers = std::make_shared<Owned>(source, place, format);
  const std::span<uint8_t> panels = integers->panels();
  const std::span<EncodeError> errors = integers->outputErrors();
  std::vector<uint8_t> bytes(panels.size() + errors.size_bytes());
  if (!read(weightPath(folder, number), hash, bytes))
    return nullptr;
  std::memcpy(panels.data(), bytes.data(), panels.size());
  std::memcpy(errors.data(), bytes.data() + panels.size(), errors.size_bytes());
  return integers;
}

void SavedCalibration::saveWeight(size_t number, const WeightSource &integers,
                                  WeightFormat format) const {
  const WeightShape &shape = integers.shape();
  const int64_t size = panelBytes(format, shape.k());
  const auto all =
      static_cast<size_t>(packedBytes(format, shape.outputs(), shape.k()));
  std::vector<uint8_t> bytes(all + static_cast<size_t>(shape.outputs()) *
                                       sizeof(EncodeError));
  for (int64_t output = 0; output < shape.outputs(); ++output) {
    const EncodeError error =
        integers.keep(format, output, 1, output % kPanelOutputs,
                      bytes.data() + output / kPanelOutputs * size);
    std::memcpy(bytes.data() + all +
                    static_cast<size_t>(output) * sizeof(EncodeError),
                &error, sizeof(EncodeError));
  }
  write(weightPath(folder, number), hash, 0, bytes);
}

void qwen::removeSavedCalibration(const fs::path &folder) {
  std::error_code ignored;
  std::vector<fs::path> files;
  for (const fs::directory_entry &file :
       fs::directory_iterator(folder, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(kEnding) ||
        name.ends_with(std::string(kEnding) + kPartial))
      files.push_back(file.path());
  }
  for (const fs::path &file : files)
    fs::remove(file, ignored);
  fs::remove(folder, ignored);
}
