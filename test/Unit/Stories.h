//===- Stories.h - models/stories in plain C++ ------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_STORIES_H
#define QWEN_TEST_UNIT_STORIES_H

#include "ReferenceModel.h"

#include <string>

namespace qwen::test {

inline constexpr int64_t kStoriesHidden = 256, kStoriesLayers = 6,
                         kStoriesVocab = 4096;
inline const std::string kStories = QWEN_SOURCE_DIR "/models/stories";

/// models/stories in f32.
ReferenceModel readStories();

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_STORIES_H
