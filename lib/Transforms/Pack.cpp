//===- Pack.cpp - The weight image ----------------------------------------===//

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PACK
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The layout that a row of the kernel table reads; none for rows that read no
/// matrix of the image.
static LayoutAttr layoutOf(MLIRContext *context, KernelFormat format) {
  const std::optional<WeightFormat> weights = weightFormat(format);
  if (!weights)
    return nullptr;
  return LayoutAttr::get(context, FormatAttr::get(context, *weights),
                         kPanelOutputs, chunkValues(*weights));
}

/// A name for what is packed of `segments`: what their names share, with the
/// parts that differ joined: a.q.weight and a.k.weight give
/// a.q_k.weight.packed.
static std::string packedName(ArrayRef<FlatSymbolRefAttr> segments) {
  SmallVector<StringRef> prefix, suffix, parts;
  segments.front().getValue().split(prefix, '.');
  suffix.assign(prefix.rbegin(), prefix.rend());
  for (FlatSymbolRefAttr segment : segments.drop_front()) {
    parts.clear();
    segment.getValue().split(parts, '.');
    auto keepCommon = [](auto &kept, const auto &others) {
      auto [last, other] =
          std::mismatch(kept.begin(), kept.end(), others.begin(), others.end());
      kept.truncate(last - kept.begin());
    };
    keepCommon(prefix, parts);
    keepCommon(suffix, llvm::reverse(parts));
  }

  std::string name;
  for (StringRef part : prefix)
    name += (name.empty() ? "" : ".") + part.str();
  if (segments.size() > 1) {
    std::string middle;
    for (FlatSymbolRefAttr segment : segments) {
      parts.clear();
      segment.getValue().split(parts, '.');
      const size_t begin = std::min(prefix.size(), parts.size());
      const size_t rest = parts.size() - begin;
      auto own =
          ArrayRef(parts).slice(begin, rest - std::min(suffix.size(), rest));
      middle += (middle.empty() ? "" : "_") + llvm::join(own, ".");
    }
    name += (name.empty() ? "" : ".") + middle;
    for (StringRef part : llvm::reverse(suffix))
      name += "." + part.str();
  }
  return name + ".packed";
}

namespace {
/// The weight image, filled in the order in which ops ask for its parts.
class Image {
public:
  explicit Image(ModuleOp module)
      : context(module.getContext()), symbols(module),
        builder(module.getContext()) {
    // Behind the weights, before the functions that refer to them.
    Operation *last = nullptr;
    for (WeightOp weight : module.getOps<WeightOp>())
      last = weight;
    if (last)
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPointToStart(module.getBody());
  }

  /// Bytes of the image so far.
  int64_t size() const { return bytes; }

  /// Room for `count` values of f32; returns its offset.
  int64_t reserveFloats(int64_t count) { return reserve(count * 4); }

  /// The matrix of `segments` that `op` reads with rows `kernels` of the table.
  FailureOr<FlatSymbolRefAttr>
  matrix(Operation *op, ArrayAttr segments,
         ArrayRef<std::optional<StringRef>> kernels) {
    LayoutAttr layout;
    for (std::optional<StringRef> kernel : kernels) {
      const KernelInfo *row =
          kernel ? findKernel({kernel->data(), kernel->size()}) : nullptr;
      if (!row) {
        op->emitOpError() << "has no kernel; run qwen-select-kernels first";
        return failure();
      }
      LayoutAttr needed = layoutOf(context, row->format);
      if (layout && layout != needed) {
        op->emitOpError() << "has kernels '" << *kernels.front() << "' and '"
                          << *kernel << "', which do not share a layout";
        return failure();
      }
      layout = needed;
    }

    for (auto segment : segments.getAsRange<FlatSymbolRefAttr>()) {
      const FailureOr<FormatAttr> format = formatOf(op, segment);
      if (failed(format))
        return failure();
      if (layout && *format == layout.getFormat())
        continue;
      op->emitOpError() << "reads " << segment << " in "
                        << weightFormatName(format->getValue())
                        << " with kernel '" << *kernels.front()
                        << "', which reads another format: the weights of a "
                           "product have one format";
      return failure();
    }
    return pack(op, segments, layout);
  }

  /// The vectors `segments`, one after another.
  FailureOr<FlatSymbolRefAttr> vector(Operation *op, ArrayAttr segments) {
    for (auto segment : segments.getAsRange<FlatSymbolRefAttr>()) {
      const FailureOr<FormatAttr> format = formatOf(op, segment);
      if (failed(format))
        return failure();
      if (format->getValue() == WeightFormat::F32)
        continue;
      op->emitOpError() << "reads the vector " << segment << " in "
                        << weightFormatName(format->getValue())
                        << " when f32 is needed";
      return failure();
    }
    return pack(op, segments, nullptr);
  }

private:
  int64_t reserve(int64_t size) {
    const int64_t offset = bytes;
    bytes = alignTo(bytes + size, static_cast<int64_t>(kTensorAlign));
    return offset;
  }

  FailureOr<FormatAttr> formatOf(Operation *op, FlatSymbolRefAttr symbol) {
    auto weight = symbols.lookup<WeightOp>(symbol.getValue());
    if (!weight || !weight.getFormat()) {
      op->emitOpError() << "reads " << symbol
                        << ", which is not a weight with a format; run "
                           "qwen-quantize first, and qwen-pack once";
      return failure();
    }
    return *weight.getFormat();
  }

  FailureOr<FlatSymbolRefAttr> pack(Operation *op, ArrayAttr segments,
                                    LayoutAttr layout) {
    FlatSymbolRefAttr &part = parts[{segments, layout}];
    if (part)
      return part;
    SmallVector<FlatSymbolRefAttr> names(
        segments.getAsRange<FlatSymbolRefAttr>());
    SmallVector<int64_t> shape;
    for (FlatSymbolRefAttr name : names) {
      auto type =
          cast<ShapedType>(symbols.lookup<WeightOp>(name.getValue()).getType());
      if (shape.empty())
        shape.assign(type.getShape().begin(), type.getShape().end());
      else
        shape.front() += type.getDimSize(0);
    }
    auto packed = PackedOp::create(
        builder, op->getLoc(), builder.getStringAttr(packedName(names)),
        segments,
        TypeAttr::get(RankedTensorType::get(shape, builder.getF32Type())),
        layout, builder.getI64IntegerAttr(0));
    packed.setOffset(reserve(packed.getByteSize()));
    // Makes the name unique where it is taken. The op is in its place already.
    part = FlatSymbolRefAttr::get(symbols.insert(packed));
    return part;
  }

  MLIRContext *context;
  SymbolTable symbols;
  OpBuilder builder;
  int64_t bytes = 0;
  llvm::DenseMap<std::pair<Attribute, Attribute>, FlatSymbolRefAttr> parts;
};

struct Pack final : qwen::impl::PackBase<Pack> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Image image(module);
    const WalkResult result = module.walk(
        [&](Operation *op) { return WalkResult(packOp(op, image)); });
    if (result.wasInterrupted())
      return signalPassFailure();
    module->setAttr(kWeightBytesAttr,
                    Builder(module).getI64IntegerAttr(image.size()));
  }

private:
  /// The list of one symbol.
  static ArrayAttr only(FlatSymbolRefAttr symbol) {
    return ArrayAttr::get(symbol.getContext(), symbol);
  }

  static LogicalResult packOp(Operation *op, Image &image) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](EmbeddingOp o) { return pack(o, image); })
        .Case([&](RopeTableOp o) {
          o.setFrequencies(image.reserveFloats(
              cast<ShapedType>(o.getCos().getType()).getDimSize(1)));
          return success();
        })
        .Case([&](RmsNormOp o) { return pack(o, image); })
        .Case([&](LinearOp o) { return pack(o, image); })
        .Case<AppendOp, AttentionOp>([&](auto o) {
          return o.getNormAttr() ? packNorm(o, image) : success();
        })
        .Case([&](LmHeadOp o) { return pack(o, image); })
        .Default(success());
  }

  static LogicalResult pack(EmbeddingOp op, Image &image) {
    auto packed = image.matrix(op, only(op.getWeightAttr()), {op.getKernel()});
    if (failed(packed))
      return failure();
    op.setWeightAttr(*packed);
    return success();
  }

  static LogicalResult pack(RmsNormOp op, Image &image) {
    auto packed = image.vector(op, only(op.getWeightAttr()));
    if (failed(packed))
      return failure();
    op.setWeightAttr(*packed);
    return success();
  }

  static LogicalResult pack(LinearOp op, Image &image) {
    auto packed =
        image.matrix(op, op.getWeightsAttr(), {op.getGemv(), op.getGemm()});
    if (failed(packed))
      return failure();
    op.setPackedAttr(*packed);
    if (!op.getBiasAttr())
      return success();
    auto bias = image.vector(op, op.getBiasAttr());
    if (failed(bias))
      return failure();
    op.setPackedBiasAttr(*bias);
    return success();
  }

  template <typename HeadsOp>
  static LogicalResult packNorm(HeadsOp op, Image &image) {
    auto packed = image.vector(op, only(op.getNormAttr()));
    if (failed(packed))
      return failure();
    op.setNormAttr(*packed);
    return success();
  }

  static LogicalResult pack(LmHeadOp op, Image &image) {
    auto packed = image.matrix(op, only(op.getWeightAttr()),
                               {op.getGemv(), op.getGemm()});
    if (failed(packed))
      return failure();
    op.setPackedAttr(*packed);
    return success();
  }
};
} // namespace
