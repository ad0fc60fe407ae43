//===- Owned.cpp - Values that the compiler computed ----------------------===//

#include "qwen/Weights/Owned.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;

/// A mapping of `size` zeros. Throws Error, which begins with `name`.
static uint8_t *allocate(uint64_t size, Owned::Place place,
                         const std::string &name) {
  int fd = -1, error = 0, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (place == Owned::Place::TemporaryFile) {
    std::string path =
        (std::filesystem::temp_directory_path() / "qwen-XXXXXX").string();
    fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0)
      unlink(path.c_str());
    // A write to a hole would be a fault where the disk is full.
    error = fd < 0 ? errno : posix_fallocate(fd, 0, static_cast<off_t>(size));
    flags = MAP_SHARED;
  }
  void *base = MAP_FAILED;
  if (error == 0) {
    base = mmap(nullptr, std::max<uint64_t>(size, 1), PROT_READ | PROT_WRITE,
                flags, fd, 0);
    error = base == MAP_FAILED ? errno : 0;
  }
  if (fd >= 0)
    close(fd);
  if (error != 0)
    throw Error(name + " needs " + std::to_string(size) +
                " bytes: " + std::strerror(error));
  return static_cast<uint8_t *>(base);
}

static uint64_t bytesOf(const WeightShape &shape,
                        std::optional<WeightFormat> format) {
  return static_cast<uint64_t>(
      format ? packedBytes(*format, shape.outputs(), shape.k())
             : shape.values() * static_cast<int64_t>(sizeof(float)));
}

Owned::Owned(std::string name, WeightShape shape, Place place,
             std::optional<WeightFormat> format)
    : text(std::move(name)), sizes(std::move(shape)), format(format),
      size(bytesOf(sizes, format)), base(allocate(size, place, text)) {}

Owned::~Owned() { munmap(base, std::max<uint64_t>(size, 1)); }

std::string_view Owned::form() const {
  return format ? weightFormatName(*format) : "computed floats";
}

uint8_t *Owned::panelOf(int64_t output) const {
  return base + output / kPanelOutputs * panelBytes(*format, sizes.k());
}

void Owned::set(int64_t first, int64_t count, const float *values) {
  const int64_t k = sizes.k();
  std::memcpy(reinterpret_cast<float *>(base) + first * k, values,
              static_cast<size_t>(count * k) * sizeof(float));
}

void Owned::set(int64_t output, std::span<const numerics::WeightBlock> blocks) {
  numerics::putOutput(*format, blocks.data(), sizes.k(), output % kPanelOutputs,
                      panelOf(output));
}

void Owned::read(int64_t first, int64_t count, float *values) const {
  const int64_t k = sizes.k();
  if (!format) {
    std::memcpy(values, reinterpret_cast<const float *>(base) + first * k,
                static_cast<size_t>(count * k) * sizeof(float));
    return;
  }
  auto *decode = numerics::reference<KernelOp::Embed>(kernelFormat(*format));
  for (int64_t i = 0; i < count; ++i)
    decode(base, static_cast<int32_t>(first + i), k, values + i * k);
}

OutputSet Owned::kept(WeightFormat other, int64_t, int64_t count) const {
  return other == format ? (OutputSet{1} << count) - 1 : 0;
}

void Owned::keep(WeightFormat other, int64_t first, OutputSet outputs,
                 int64_t lane, uint8_t *panel) const {
  for (int64_t i = 0; outputs >> i != 0; ++i)
    if ((outputs >> i & 1) != 0)
      numerics::copyOutput(other, sizes.k(), panelOf(first + i),
                           (first + i) % kPanelOutputs, panel, lane + i);
}
