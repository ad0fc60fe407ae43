//===- Artifact.cpp - A compiled model, opened ----------------------------===//

#include "artifact/Artifact.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/InputError.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

Artifact::Artifact(const std::string &path) try
    : file(path), layout(readElfLayout(file)) {
  const ArtifactHeader &h = layout.header;
  uint64_t end = h.code.size;
  for (const FileRange &range :
       {h.manifest, h.tokenizer, h.chatTemplate, h.weightChecksums})
    end = std::max(end, range.size ? range.offset + range.size : 0);
  front = Mapping::file(file, 0, end, 0);

  const auto check = [&](const char *name, FileRange range, uint64_t checksum) {
    const std::span<const uint8_t> bytes = part(range);
    if (!bytes.empty() && XXH3_64bits(bytes.data(), bytes.size()) != checksum)
      throw Error(path + " is damaged: the checksum of its " + name +
                  " does not match");
  };
  check("manifest", h.manifest, h.manifestChecksum);
  check("tokenizer", h.tokenizer, h.tokenizerChecksum);
  check("chat template", h.chatTemplate, h.chatTemplateChecksum);
  check("weight checksums", h.weightChecksums, h.weightChecksumsChecksum);
  if (h.manifest.size == 0)
    throw Error(path + " holds kernels and no model");

  facts = parseManifest(manifestText(), path, h.weights.size);
  if (static_cast<uint32_t>(facts.arch()) != h.arch)
    throw Error(path + " is damaged: its manifest says " +
                std::string(archName(facts.arch())) +
                " and its header another architecture");
  if (h.weights.size == 0)
    return;
  weightMap = Mapping::file(file, h.weights.offset, h.weights.size, kHugePage);
  weightMap.useHugePages();
} catch (...) {
  throwInputError();
}

void Artifact::readAhead() const {
  if (weightMap.size() == 0 || exceedsFreeMemory(weightMap.size()))
    return;
  // MADV_POPULATE_READ reads missing data into huge memory pages; MADV_WILLNEED
  // does not.
  if (madvise(weightMap.data(), weightMap.size(), MADV_POPULATE_READ) != 0)
    madvise(weightMap.data(), weightMap.size(), MADV_WILLNEED);
}

void Artifact::forget() const {
  if (weightMap.size())
    madvise(weightMap.data(), weightMap.size(), MADV_DONTNEED);
}

void Artifact::lock() const {
  if (weightMap.size())
    weightMap.lock("weights of " + path());
}

std::span<const uint8_t> Artifact::part(FileRange range) const {
  if (range.size == 0)
    return {};
  return {front.data() + range.offset, static_cast<size_t>(range.size)};
}

std::string_view Artifact::text(FileRange range) const {
  const std::span<const uint8_t> bytes = part(range);
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

const TargetInfo &Artifact::selectTarget(Arch arch,
                                         CpuFeatureSet features) const {
  if (facts.arch() != arch)
    throw TargetError(path() + " was compiled for " +
                      std::string(archName(facts.arch())) +
                      " and this machine is " + std::string(archName(arch)) +
                      "; recompile the model with qwen-opt --target");
  if (const TargetInfo *target = facts.bestTarget(arch, features))
    return *target;
  std::string lacks;
  for (const TargetInfo &target : facts.targets)
    lacks += (lacks.empty() ? "" : "; ") + target.name + " needs " +
             toString(target.features - features);
  throw TargetError(path() +
                    " was compiled for CPU features that this machine " +
                    "lacks: " + lacks +
                    "; recompile the model with qwen-opt --target native here");
}

uint64_t Artifact::weightMiBs() const {
  return layout.header.weightChecksums.size / sizeof(uint64_t);
}

uint64_t Artifact::checkWeights(uint64_t first,
                                const std::function<bool()> &enough) const {
  const uint8_t *checksums = part(layout.header.weightChecksums).data();
  for (; first < weightMiBs() && !(enough && enough()); ++first) {
    const uint64_t offset = first * kChecksumBytes;
    const uint64_t size =
        std::min(kChecksumBytes, layout.header.weights.size - offset);
    uint64_t needed;
    memcpy(&needed, checksums + first * sizeof(needed), sizeof(needed));
    if (XXH3_64bits(weightMap.data() + offset, size) != needed)
      throw InputError(path() + " is damaged: the checksum of bytes " +
                       std::to_string(offset) + " to " +
                       std::to_string(offset + size) +
                       " of its weights does not match; copy the file again or "
                       "compile the model again");
  }
  return first;
}

uint64_t Artifact::check() const {
  checkCode();
  checkWeights();
  return layout.header.code.size + layout.header.weights.size;
}
