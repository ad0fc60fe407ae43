//===- HandmadeArtifact.cpp - Artifacts for tests -------------------------===//

#include "HandmadeArtifact.h"

#include "qwen/ABI/KernelABI.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;
using namespace qwen::test;

std::string qwen::test::handmadeManifest() {
  const std::string arch(archName(hostArch()));
  const std::string feature(featureName(
      hostArch() == Arch::X86_64 ? CpuFeature::AVX2 : CpuFeature::NEON));
  return R"({"compiler": "handmade", "numerics_version": 1, "model":
    {"name": "handmade", "tokenizer_vocab": 37, "context": 100}, "targets": [{"name": "test", "arch": ")" +
         arch + R"(", "features": [")" + feature + R"("], "kernels": ["k"]}],
    "kv": {"page_tokens": 64,
    "page_bytes": 8192, "token_bytes": 128}, "programs": [{"name": "forward",
    "model": {"architecture": "Qwen3ForCausalLM", "vocab_size": 40,
    "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 16,
    "intermediate_size": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
    "tied": true, "max_context": 100}, "limits": {"tokens": 8, "rows": 2}, "arena_bytes": 1024, "caches": [{"name": "kv",
    "kind": "paged", "format": "f32", "layer_bytes": 128, "layers": [0]}], "inputs": [{"name": "ids"},
    {"name": "positions"}], "outputs": [{"name": "logits", "width": 40, "stride": 48}],
    "ops": ["first", "second"], "work": [{"kind": "linear", "weight_bytes": 64,
    "active_bytes": 48, "token_bytes": 32, "calls": [{"macs": 16}]},
    {"kind": "attention", "position_bytes": 8, "count": 1, "calls":
    [{"kernel": 1, "length": 64, "queries": 2, "calls": 3, "page_calls": 5,
    "position_macs": 4}]}], "kernels": [[[0], [0, 0]]]}], "tensors": [{"name": "w", "shape": [4, 4],
    "format": "f32", "offset": 0, "bytes": 64, "segments": [{"name": "v",
    "outputs": 4}]}],
    "generation": {"do_sample": false, "temperature": 1.0, "top_k": 50,
    "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
    "eos_token_id": [36]}, "quantization": {"quantizer": "gptq",
    "rotated": true, "awq": false, "tokens": 512, "text": "ab",
    "distilled": {"steps": 8, "tokens": 256}}})";
}

HandmadeArtifact::HandmadeArtifact(const std::string &manifest) {
  const std::vector<uint8_t> code =
      hostArch() == Arch::X86_64 ? std::vector<uint8_t>{0xB8, 42, 0, 0, 0, 0xC3}
                                 : std::vector<uint8_t>{0x40, 0x05, 0x80, 0x52,
                                                        0xC0, 0x03, 0x5F, 0xD6};
  const uint64_t codeEnd = kCode + code.size();
  const uint64_t checksums = (codeEnd + manifest.size() + 63) / 64 * 64;
  bytes.resize(kWeights + 64);
  memcpy(bytes.data() + kCode, code.data(), code.size());
  memcpy(bytes.data() + codeEnd, manifest.data(), manifest.size());
  memset(bytes.data() + kWeights, 7, 64);

  Elf64_Ehdr &e = elf();
  memcpy(e.e_ident, ELFMAG, SELFMAG);
  e.e_ident[EI_CLASS] = ELFCLASS64;
  e.e_ident[EI_DATA] = ELFDATA2LSB;
  e.e_type = ET_DYN;
  e.e_machine = hostArch() == Arch::X86_64 ? EM_X86_64 : EM_AARCH64;
  e.e_phoff = sizeof(e);
  e.e_phentsize = sizeof(Elf64_Phdr);
  e.e_phnum = 5;
  const auto fill = [&](int i, uint32_t type, uint32_t flags, uint64_t offset,
                        uint64_t size) {
    segment(i) = {type, flags, offset, offset, offset, size, size, 0};
  };
  fill(0, PT_LOAD, PF_R, 0, 0x1000);
  fill(1, PT_LOAD, PF_R | PF_X, kCode, code.size());
  const uint64_t note = kHeader - sizeof(Elf64_Nhdr) - 8;
  fill(2, PT_NOTE, PF_R, note, kHeader + sizeof(ArtifactHeader) - note);
  fill(3, PT_DYNAMIC, PF_R, kDynamic, 2 * sizeof(Elf64_Dyn));
  fill(4, PT_GNU_STACK, PF_R | PF_W, 0, 0);

  const Elf64_Nhdr noteHeader = {sizeof(kNoteName), sizeof(ArtifactHeader),
                                 kNoteType};
  memcpy(bytes.data() + note, &noteHeader, sizeof(noteHeader));
  memcpy(bytes.data() + note + sizeof(noteHeader), kNoteName,
         sizeof(kNoteName));

  memcpy(bytes.data() + kNames, "answer.test\0forward.test", 25);
  bytes[kTable] = 2;
  const auto entryAt = [&](int i, uint64_t function, uint64_t name) {
    const uint64_t at = kTable + sizeof(EntryTable) + i * sizeof(EntryPoint);
    entry(i) = {static_cast<int32_t>(function - at),
                static_cast<int32_t>(name - at - 4)};
  };
  entryAt(0, kCode, kNames);
  entryAt(1, codeEnd - (hostArch() == Arch::X86_64 ? 1 : 4), kNames + 12);

  ArtifactHeader &h = header();
  memcpy(h.magic, kArtifactMagic, sizeof(kArtifactMagic));
  h.formatVersion = kFormatVersion;
  h.kernelAbiVersion = kKernelAbiVersion;
  h.contextSize = sizeof(Context);
  h.arch = static_cast<uint32_t>(hostArch());
  h.fileSize = bytes.size();
  h.code = {0, codeEnd};
  h.manifest = {codeEnd, manifest.size()};
  h.weightChecksums = {checksums, 8};
  h.weights = {kWeights, 64};
  h.entryTable = kTable;
  seal();
}

void HandmadeArtifact::resizeWeights(uint64_t size) {
  bytes.resize(kWeights + size);
  ArtifactHeader &h = header();
  h.fileSize = bytes.size();
  h.weights.size = size;
  h.weightChecksums.size =
      (size + kChecksumBytes - 1) / kChecksumBytes * sizeof(uint64_t);
  seal();
}

void HandmadeArtifact::seal() {
  ArtifactHeader h = header();
  const auto checksum = [&](FileRange range) {
    return XXH3_64bits(bytes.data() + range.offset, range.size);
  };
  for (uint64_t at = 0; at < h.weights.size; at += kChecksumBytes) {
    const uint64_t sum = checksum(
        {h.weights.offset + at, std::min(kChecksumBytes, h.weights.size - at)});
    memcpy(bytes.data() + h.weightChecksums.offset +
               at / kChecksumBytes * sizeof(sum),
           &sum, sizeof(sum));
  }
  h.weightChecksumsChecksum = checksum(h.weightChecksums);
  h.manifestChecksum = checksum(h.manifest);
  h.tokenizerChecksum = checksum(h.tokenizer);
  h.chatTemplateChecksum = checksum(h.chatTemplate);
  header() = {};
  h.codeChecksum = checksum(h.code);
  header() = h;
  sealHeader();
}

void HandmadeArtifact::sealHeader() {
  header().headerChecksum =
      XXH3_64bits(&header(), offsetof(ArtifactHeader, headerChecksum));
}

std::string HandmadeArtifact::write(const std::string &name) const {
  // The same test may run for another CPU at the same time.
  const std::string path =
      testing::TempDir() + "/" + std::to_string(getpid()) + "-" + name;
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char *>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(stream.good()) << path;
  return path;
}
