//===- TextRun.h - A text through a model, part by part ---------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_TEXTRUN_H
#define QWEN_CALIBRATION_TEXTRUN_H

#include "calibration/LoadedPrograms.h"
#include "calibration/Sublayers.h"
#include "engine/ThreadPool.h"
#include "qwen/Support/Pages.h"
#include "qwen/Weights/WeightSource.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// Rows [count][k] that products of a sublayer read, of the next tokens of the
/// text.
struct ReadRows {
  /// The place of their input in Sublayer::inputs.
  size_t input;
  /// 0 for products of all tokens. An expert gets the rows of the tokens that
  /// chose it, if there are any.
  size_t expert;
  std::span<const float> rows;
  /// The numbers of their tokens in the text, in ascending order.
  std::span<const int64_t> tokens;
};

/// Runs windows of a text through the sublayers of a model, in f32, by the
/// kernels of this machine. Sublayers of equal structure share their code.
class TextRun {
public:
  /// `ids` are windows of `window` tokens, without a rest. `module` is at stage
  /// "graph"; `weights`, whose ops it names, and `pool` must outlive this.
  /// The weights of a sublayer are read when it runs. The residual stream lies
  /// in `place`. Throws Error if there is no room.
  TextRun(mlir::ModuleOp module, const WeightSources &weights,
          std::span<const int32_t> ids, int64_t window, ThreadPool &pool,
          Place place = Place::Memory);
  ~TextRun();

  using ReceiveFn = std::function<void(const ReadRows &read)>;

  /// Sets the residual stream to the rows of `embedding`. Throws Error.
  void embed(EmbeddingOp embedding);
  /// Brings the residual stream to the next sublayer. Throws Error, which names
  /// the sublayer, if a number is not finite.
  void run(const Sublayer &sublayer, const ReceiveFn &receive);

  /// The logits that the head, the last sublayer, makes of rows of the residual
  /// stream: at most kHeadRows of them. [rows][headWidth()], valid until the
  /// next call.
  std::span<const float> logits(const Sublayer &head,
                                std::span<const float> rows);
  static constexpr int64_t kHeadRows = 128;
  /// Values from one row of logits to the next.
  int64_t headWidth() const;

  /// The residual stream, [tokens][hidden size].
  std::span<float> rows() const {
    return {stream.as<float>(), ids.size() * static_cast<size_t>(width)};
  }
  int64_t rowWidth() const { return width; }
  int64_t windowTokens() const { return window; }

private:
  struct Kind;
  /// A module with the program of a sublayer, and the weights that stand for
  /// the weights of this sublayer.
  struct Program;
  /// The program of the head, with its weights.
  struct Head;
  Program emptyProgram();
  Program makeProgram(const Sublayer &sublayer);
  std::unique_ptr<Head> makeHead(const Sublayer &head);
  Kind &kindOf(Program &program);
  void runCalls(const Sublayer &sublayer, const Kind &kind,
                const uint8_t *weights, const ReceiveFn &receive);

  mlir::ModuleOp module;
  const WeightSources &weights;
  const std::span<const int32_t> ids;
  const int64_t window;
  ThreadPool &pool;
  const int64_t width;
  const Pages stream;
  /// By the text of their module.
  std::map<std::string, std::shared_ptr<Kind>> kinds;
  std::unique_ptr<Head> headProgram;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_TEXTRUN_H
