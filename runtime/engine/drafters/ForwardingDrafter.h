//===- ForwardingDrafter.h - A drafter over another one ---------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_FORWARDINGDRAFTER_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_FORWARDINGDRAFTER_H

#include "engine/drafters/Drafter.h"

#include <utility>

namespace qwen {

/// Does what another drafter does.
class ForwardingDrafter : public Drafter {
public:
  explicit ForwardingDrafter(std::unique_ptr<Drafter> drafter)
      : other(std::move(drafter)) {}

  void begin(const Track &track) override { other->begin(track); }
  int64_t strength(const Track &track) override {
    return other->strength(track);
  }
  int64_t otherStrength(const Track &track) override {
    return other->otherStrength(track);
  }
  std::optional<double> usualShare() const override {
    return other->usualShare();
  }
  int64_t mostDrafts() const override { return other->mostDrafts(); }
  double secondsBehind(const Track &track) override {
    return other->secondsBehind(track);
  }
  void prepare(std::span<const DraftOrder> orders) override {
    other->prepare(orders);
  }
  std::span<const DraftCall> calls() const override { return other->calls(); }
  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    other->draft(track, most, tokens);
  }
  void follow(Step &step) override { other->follow(step); }
  void accept(const Track &track, int64_t drafted, int64_t accepted) override {
    other->accept(track, drafted, accepted);
  }
  void end(const Track &track) override { other->end(track); }

private:
  const std::unique_ptr<Drafter> other;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_FORWARDINGDRAFTER_H
