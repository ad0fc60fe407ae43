//===- ModelPartsTest.cpp - What the models of some programs have ---------===//

#include "HandmadeArtifact.h"
#include "TempDir.h"

#include "artifact/Manifest.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

/// A part as the manifest has it: each number is the most of its fact.
template <typename Part> static json makePart(const ModelPart<Part> &part) {
  json object = json::object();
  Part sample = {};
  for (const Fact<Part> &fact : part.facts)
    fact.visitIn(sample, [&]<typename Member>(Member &) {
      if constexpr (std::is_same_v<Member, bool>)
        object[fact.key] = true;
      else
        object[fact.key] = static_cast<Member>(fact.most);
    });
  return object;
}

TEST(ModelParts, EachRowIsReadFromTheManifest) {
  json manifest = json::parse(handmadeManifest());
  json &model = manifest["programs"][0]["model"];
  const auto read = [&] {
    return parseManifest(manifest.dump(), "f", 64).forward().model;
  };
  visitModelParts([&]<typename Part>(const ModelPart<Part> &part) {
    model.erase(part.key);
    EXPECT_FALSE(read().*part.member) << part.key;
    model[part.key] = makePart(part);
    const ProgramModel found = read();
    ASSERT_TRUE(found.*part.member) << part.key;
    for (const Fact<Part> &fact : part.facts)
      fact.visitIn(*(found.*part.member), [&](auto value) {
        EXPECT_EQ(json(value), model[part.key][fact.key]) << fact.key;
      });
  });
}

TEST(ModelParts, EachFactIsNeeded) {
  json manifest = json::parse(handmadeManifest());
  visitModelParts([&]<typename Part>(const ModelPart<Part> &part) {
    for (const Fact<Part> &fact : part.facts) {
      json broken = manifest;
      json &object = broken["programs"][0]["model"][part.key];
      object = makePart(part);
      object.erase(fact.key);
      const std::string message =
          messageOf([&] { parseManifest(broken.dump(), "f", 64); });
      EXPECT_NE(message.find(std::string(part.key) + "." + fact.key),
                message.npos)
          << message;
    }
  });
}
