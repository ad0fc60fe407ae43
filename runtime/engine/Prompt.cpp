//===- Prompt.cpp - What a model reads, and who may share it --------------===//

#include "engine/Prompt.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <bit>

using namespace qwen;

void Prompt::requireMedia() const {
  int64_t end = 0;
  for (const Medium &medium : media) {
    if (medium.position < end || medium.rows < 1 || medium.count < 1 ||
        medium.count > std::ssize(ids) - medium.position)
      throw Error("a medium has " + std::to_string(medium.count) +
                  " positions from " + std::to_string(medium.position) +
                  " on, in " + std::to_string(medium.rows) +
                  " rows, when 1 or more of the positions " +
                  std::to_string(end) + " to " +
                  std::to_string(std::ssize(ids) - 1) + " are needed");
    end = medium.position + medium.count;
  }
}

Identity::Identity(const Prompt &prompt) : root(prompt.root) {
  if (!prompt.media.empty())
    media = std::make_shared<const std::vector<Medium>>(prompt.media);
}

std::span<const Medium> Identity::overlapping(int64_t first,
                                              int64_t end) const {
  if (!media)
    return {};
  const auto from =
      std::ranges::partition_point(*media, [&](const Medium &each) {
        return each.position + each.count <= first;
      });
  const auto to =
      std::partition_point(from, media->end(), [&](const Medium &each) {
        return each.position < end;
      });
  return {from, to};
}

bool Identity::matches(const Identity &other, int64_t first,
                       int64_t end) const {
  return root == other.root &&
         std::ranges::equal(overlapping(first, end),
                            other.overlapping(first, end));
}

size_t Identity::hash(int64_t first, int64_t end) const {
  size_t value = std::hash<RootRef>()(root);
  for (const Medium &medium : overlapping(first, end)) {
    std::array<uint8_t, sizeof(size_t)> bytes;
    std::copy_n(medium.digest.begin(), bytes.size(), bytes.begin());
    value = std::rotl(value, 1) ^ std::bit_cast<size_t>(bytes);
  }
  return value;
}
