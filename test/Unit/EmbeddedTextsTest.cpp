//===- EmbeddedTextsTest.cpp - The calibration text of qwen-opt -----------===//

#include "calibration/EmbeddedTexts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

using namespace qwen;

TEST(EmbeddedTexts, AreTheFiles) {
  std::string kinds;
  for (const EmbeddedText &part : embeddedTexts()) {
    const std::string kind(part.kind);
    kinds += kind + " ";
    std::ifstream file(QWEN_SOURCE_DIR "/calibration/text/" + kind + ".txt");
    EXPECT_EQ(part.text, std::string(std::istreambuf_iterator(file), {}));
    EXPECT_NE(part.text.find("\n<|endoftext|>\n"), std::string::npos);
  }
  EXPECT_EQ(kinds, "english chinese code chat mathematics ");
}
