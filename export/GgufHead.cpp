//===- GgufHead.cpp - What precedes the tensors of a GGUF file ------------===//

#include "export/GgufHead.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"

#include <bit>
#include <ranges>

using namespace qwen;

static_assert(std::endian::native == std::endian::little);

template <typename T> static void append(std::string &to, T value) {
  to.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

static void appendText(std::string &to, std::string_view text) {
  append(to, uint64_t{text.size()});
  to += text;
}

/// Begins the entry of a key.
static void appendKey(std::string &to, std::string_view key, GgufType type) {
  appendText(to, key);
  append(to, type);
}

static void appendArray(std::string &to, std::string_view key, GgufType type,
                        size_t count) {
  appendKey(to, key, GgufType::Array);
  append(to, type);
  append(to, uint64_t{count});
}

static uint64_t aligned(uint64_t offset) {
  return (offset + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

void GgufHead::addText(std::string_view key, std::string_view value) {
  appendKey(keys, key, GgufType::String);
  appendText(keys, value);
  ++keyCount;
}

void GgufHead::addInteger(std::string_view key, uint32_t value) {
  appendKey(keys, key, GgufType::U32);
  append(keys, value);
  ++keyCount;
}

void GgufHead::addNumber(std::string_view key, float value) {
  appendKey(keys, key, GgufType::F32);
  append(keys, value);
  ++keyCount;
}

void GgufHead::addFlag(std::string_view key, bool value) {
  appendKey(keys, key, GgufType::Bool);
  append(keys, uint8_t{value});
  ++keyCount;
}

void GgufHead::addTexts(std::string_view key,
                        std::span<const std::string> values) {
  appendArray(keys, key, GgufType::String, values.size());
  for (const std::string &value : values)
    appendText(keys, value);
  ++keyCount;
}

void GgufHead::addIntegers(std::string_view key,
                           std::span<const int32_t> values) {
  appendArray(keys, key, GgufType::I32, values.size());
  for (int32_t value : values)
    append(keys, value);
  ++keyCount;
}

uint64_t GgufHead::addTensor(std::string_view name, StoredType type,
                             std::span<const int64_t> shape) {
  appendText(tensors, name);
  append(tensors, static_cast<uint32_t>(shape.size()));
  int64_t values = 1;
  for (int64_t size : shape | std::views::reverse) {
    append(tensors, static_cast<uint64_t>(size));
    values *= size;
  }
  append(tensors, infoOf(type).ggmlType);
  const uint64_t offset = dataEnd;
  append(tensors, offset);
  dataEnd = aligned(offset + static_cast<uint64_t>(storedBytes(type, values)));
  ++tensorCount;
  return offset;
}

std::string GgufHead::make() const {
  std::string head = "GGUF";
  append(head, uint32_t{3});
  append(head, tensorCount);
  append(head, keyCount);
  head += keys;
  head += tensors;
  head.resize(aligned(head.size()));
  return head;
}
