//===- Pack.cpp - The weight images ---------------------------------------===//

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PACK
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The name of the packed `segments`: the common prefix and suffix of their
/// names around the joined rest. a.q.weight and a.k.weight give
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
/// The weight images, filled in the order in which ops ask for parts.
class Images {
public:
  explicit Images(ModuleOp module)
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

  /// Bytes of an image so far; null: the model's.
  int64_t size(FlatSymbolRefAttr image) const { return bytes.lookup(image); }

  /// The part that holds the weights of `use`, which `op` reads.
  FailureOr<FlatSymbolRefAttr> part(ForwardOp op, const WeightUse &use) {
    const FailureOr<LayoutAttr> layout = layoutOf(op, use);
    if (failed(layout))
      return failure();
    const auto found = parts.find({use.segments, *layout});
    if (found != parts.end())
      return found->second;
    if (use.experts) {
      if (failed(placeExperts(use.experts->choice)))
        return failure();
    } else {
      PackedOp packed = create(op, use, *layout);
      packed.setOffset(reserve(packed.getImageAttr(), packed.getByteSize()));
    }
    return parts.lookup({use.segments, *layout});
  }

private:
  WeightOp weightOf(Attribute segment) {
    return symbols.lookup<WeightOp>(
        cast<FlatSymbolRefAttr>(segment).getValue());
  }
  FlatSymbolRefAttr imageOf(const WeightUse &use) {
    return weightOf(use.segments[0]).getImageAttr();
  }

  /// Checks that `use` is in `image`, as `first` is.
  LogicalResult checkImage(ForwardOp op, const WeightUse &use, Attribute first,
                           FlatSymbolRefAttr image) {
    for (Attribute segment : use.segments)
      if (weightOf(segment).getImageAttr() != image)
        return op->emitOpError()
               << "reads " << first << " and " << segment
               << " of different images when weights that lie together need "
                  "one image";
    return success();
  }

  /// The layout of a matrix; none of a vector.
  FailureOr<LayoutAttr> layoutOf(ForwardOp op, const WeightUse &use) {
    if (failed(checkImage(op, use, use.segments[0], imageOf(use))))
      return failure();
    FormatAttr format;
    for (auto segment : use.segments.getAsRange<FlatSymbolRefAttr>()) {
      const std::optional<FormatAttr> found = weightOf(segment).getFormat();
      if (!found) {
        op->emitOpError() << "reads " << segment
                          << ", which has no format; run qwen-quantize first";
        return failure();
      }
      if (format && format != *found) {
        op->emitOpError() << "reads " << use.segments[0] << " in "
                          << weightFormatName(format.getValue()) << " and "
                          << segment << " in "
                          << weightFormatName(found->getValue())
                          << " when the weights of a product need one format";
        return failure();
      }
      format = *found;
    }
    return use.role == WeightRole::Vector
               ? LayoutAttr()
               : LayoutAttr::get(context, format.getValue());
  }

  int64_t reserve(FlatSymbolRefAttr image, int64_t size) {
    int64_t &end = bytes[image];
    const int64_t offset = end;
    end = alignTo(end + size, static_cast<int64_t>(kTensorAlign));
    return offset;
  }

  /// Places the parts of all ops that read the experts of `choice`, expert by
  /// expert: what a token reads of one is a range of an image.
  LogicalResult placeExperts(Value choice) {
    SmallVector<PackedOp> placed;
    Attribute firstWeight;
    int64_t experts = 0, stride = 0;
    for (Operation &user : *choice.getParentBlock()) {
      auto op = dyn_cast<ForwardOp>(user);
      if (!op || !llvm::is_contained(op->getOperands(), choice))
        continue;
      for (const WeightUse &use : op.getWeightUses()) {
        if (!use.experts || use.experts->choice != choice)
          continue;
        if (!firstWeight)
          firstWeight = use.segments[0];
        const FailureOr<LayoutAttr> layout = layoutOf(op, use);
        if (failed(layout) ||
            failed(checkImage(op, use, firstWeight,
                              weightOf(firstWeight).getImageAttr())))
          return failure();
        if (parts.contains({use.segments, *layout}))
          continue;
        experts = use.experts->count;
        placed.push_back(create(op, use, *layout));
        placed.back().setExperts(experts);
        // From the first matrix of an expert; below, from the image's begin.
        placed.back().setOffset(stride);
        stride = alignTo(stride + placed.back().getMatrixBytes(),
                         static_cast<int64_t>(kTensorAlign));
      }
    }
    const int64_t first =
        reserve(weightOf(firstWeight).getImageAttr(), experts * stride);
    for (PackedOp packed : placed) {
      packed.setOffset(first + static_cast<int64_t>(packed.getOffset()));
      packed.setStride(stride);
    }
    return success();
  }

  /// A part without a place.
  PackedOp create(Operation *op, const WeightUse &use, LayoutAttr layout) {
    SmallVector<FlatSymbolRefAttr> names(
        use.segments.getAsRange<FlatSymbolRefAttr>());
    SmallVector<int64_t> shape;
    for (FlatSymbolRefAttr name : names) {
      auto type = cast<ShapedType>(weightOf(name).getType());
      if (shape.empty())
        shape.assign(type.getShape().begin(), type.getShape().end());
      else
        shape.front() += type.getDimSize(0);
    }
    auto packed = PackedOp::create(
        builder, op->getLoc(), builder.getStringAttr(packedName(names)),
        use.segments,
        TypeAttr::get(RankedTensorType::get(shape, builder.getF32Type())),
        layout, builder.getI64IntegerAttr(0), IntegerAttr(), IntegerAttr(),
        imageOf(use));
    // Makes the name unique. The op is in its place already.
    parts[{use.segments, layout}] =
        FlatSymbolRefAttr::get(symbols.insert(packed));
    return packed;
  }

  MLIRContext *context;
  SymbolTable symbols;
  OpBuilder builder;
  llvm::DenseMap<Attribute, int64_t> bytes;
  llvm::DenseMap<std::pair<Attribute, Attribute>, FlatSymbolRefAttr> parts;
};

struct Pack final : qwen::impl::PackBase<Pack> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Images images(module);
    const WalkResult result = module.walk(
        [&](ForwardOp op) { return WalkResult(packWeights(op, images)); });
    if (result.wasInterrupted())
      return signalPassFailure();
    Builder builder(module);
    module->setAttr(kWeightBytesAttr,
                    builder.getI64IntegerAttr(images.size({})));
    for (ImageOp image : module.getOps<ImageOp>())
      image.setBytes(images.size(FlatSymbolRefAttr::get(image)));
  }

private:
  static LogicalResult packWeights(ForwardOp op, Images &images) {
    SmallVector<Attribute> parts;
    for (const WeightUse &use : op.getWeightUses()) {
      const FailureOr<FlatSymbolRefAttr> part = images.part(op, use);
      if (failed(part))
        return failure();
      parts.push_back(*part);
    }
    if (!parts.empty())
      op.setPackedAttr(ArrayAttr::get(op->getContext(), parts));
    return success();
  }
};
} // namespace
