#include "kernels/prepare_qkv/validate.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "kernels/common/float_environment.h"

namespace headwise {
namespace {

// A named matrix as bytes.
struct Region {
  const char* name;
  std::uintptr_t begin;
  std::int64_t rows, width, stride;  // width and stride in bytes
};

template <typename T>
Region RegionOf(const char* name, RowSpan<T> span) {
  const std::int64_t size = sizeof(T);
  return {name, reinterpret_cast<std::uintptr_t>(span.data), span.data == nullptr ? 0 : span.rows,
          span.width * size, span.stride * size};
}

template <typename T>
Region RegionOf(const char* name, absl::Span<T> span) {
  const std::int64_t bytes = static_cast<std::int64_t>(span.size() * sizeof(T));
  return {name, reinterpret_cast<std::uintptr_t>(span.data()), bytes > 0 ? 1 : 0, bytes, bytes};
}

// Whether some byte belongs to a row of both. Rows of either ascend in memory, so one walk over the
// rows of both is enough, and only if their extents meet at all.
bool Overlap(const Region& a, const Region& b) {
  if (a.rows == 0 || b.rows == 0) return false;
  const auto begin = [](const Region& r, std::int64_t row) {
    return r.begin + static_cast<std::uintptr_t>(row * r.stride);
  };
  const auto end = [&](const Region& r, std::int64_t row) {
    return begin(r, row) + static_cast<std::uintptr_t>(r.width);
  };
  if (end(a, a.rows - 1) <= b.begin || end(b, b.rows - 1) <= a.begin) return false;
  for (std::int64_t i = 0, j = 0; i < a.rows && j < b.rows;) {
    if (end(a, i) <= begin(b, j)) {
      ++i;
    } else if (end(b, j) <= begin(a, i)) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

absl::Status CheckDisjoint(std::initializer_list<Region> outputs,
                           std::initializer_list<Region> inputs) {
  for (const Region* out = outputs.begin(); out != outputs.end(); ++out) {
    for (const Region& in : inputs) {
      if (Overlap(*out, in)) {
        return absl::InvalidArgumentError(
            absl::StrCat(out->name, " overlaps ", in.name, ": outputs need memory of their own"));
      }
    }
    for (const Region* other = out + 1; other != outputs.end(); ++other) {
      if (Overlap(*out, *other)) {
        return absl::InvalidArgumentError(absl::StrCat(out->name, " overlaps ", other->name,
                                                       ": outputs need memory of their own"));
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckRows(const char* name, RowSpan<T> span, std::int64_t rows, std::int64_t width,
                       const char* shape) {
  if (span.rows != rows || span.width != width) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: found [%d, %d], expected %s = [%d, %d]",
                                                      name, span.rows, span.width, shape, rows,
                                                      width));
  }
  if (rows > 1 && span.stride < width) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: found stride %d, expected at least the row's width %d", name, span.stride, width));
  }
  constexpr std::int64_t kMaxElements =
      std::numeric_limits<std::int64_t>::max() / std::int64_t{sizeof(T)};
  if (rows > 1 && span.stride > (kMaxElements - width) / rows) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d rows of stride %d do not fit in 64-bit addresses", name, rows, span.stride));
  }
  if (rows > 0 && span.data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: found a null pointer, expected %d rows", name, rows));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckInputs(const QkvPreparation& op, const QkvInputs<T>& in, PositionsIn positions) {
  HW_RETURN_IF_ERROR(CheckFloatEnvironment());
  const std::int64_t dim = op.layout.head_dim();
  if (dim % 2 != 0 || dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "layout: found head_dim %d, expected an even number from 2 to %d", dim, kMaxHeadDim));
  }
  if (!(op.epsilon >= 0 && std::isfinite(op.epsilon))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("epsilon: found %g, expected a finite number >= 0", op.epsilon));
  }
  if (!std::isfinite(op.query_scale)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("query_scale: found %g, expected a finite number", op.query_scale));
  }
  if (op.norm == HeadNorm::kNone && op.query_scale != 1.0f) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "query_scale: found %g, expected 1 with HeadNorm::kNone; fold it into attention's scale",
        op.query_scale));
  }
  const std::int64_t tokens = in.packed.rows;
  if (tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("packed: found %d rows, expected T >= 0", tokens));
  }
  HW_RETURN_IF_ERROR(
      CheckRows("packed", in.packed, tokens, op.layout.row_width(), "[T, (H + 2 G) D]"));

  const std::int64_t weights = HasWeight(op.norm) ? dim : 0;
  const char* why = weights > 0 ? "head_dim, because the norm has a weight"
                                : "none, because the norm has no weight";
  for (const auto& [name, weight] :
       {std::pair{"q_weight", in.q_weight}, std::pair{"k_weight", in.k_weight}}) {
    if (static_cast<std::int64_t>(weight.size()) != weights) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: found %d values, expected %d (%s)",
                                                        name, weight.size(), weights, why));
    }
  }
  if (op.rotary == nullptr) return absl::OkStatus();

  if (op.rotary->rotary_dim() > dim) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "rotary: found rotary_dim %d, expected at most head_dim %d", op.rotary->rotary_dim(), dim));
  }
  if (positions == PositionsIn::kDeviceMemory) {
    if (in.positions.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "positions: found %d in host memory, expected none, because they are given in device "
        "memory",
        in.positions.size()));
  }
  if (static_cast<std::int64_t>(in.positions.size()) != tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("positions: found %d values, expected one for each of %d tokens (RoPE)",
                        in.positions.size(), tokens));
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (in.positions[t] < 0 || in.positions[t] >= op.rotary->length()) {
      return absl::OutOfRangeError(
          absl::StrFormat("positions: token %d has position %d, expected 0 <= position < %d, the "
                          "rotary table's length",
                          t, in.positions[t], op.rotary->length()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::Status ValidateForward(const QkvPreparation& op, const QkvInputs<T>& in,
                             const QkvOutputs<T>& out, PositionsIn positions) {
  HW_RETURN_IF_ERROR(CheckInputs(op, in, positions));
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
  const std::int64_t q_width = op.layout.query_heads() * dim;
  const std::int64_t kv_width = op.layout.kv_heads() * dim;
  HW_RETURN_IF_ERROR(CheckRows("q", out.q, tokens, q_width, "[T, H D]"));
  HW_RETURN_IF_ERROR(CheckRows("k", out.k, tokens, kv_width, "[T, G D]"));
  if (out.v.data != nullptr) {
    HW_RETURN_IF_ERROR(CheckRows("v", out.v, tokens, kv_width, "[T, G D]"));
  }
  return CheckDisjoint({RegionOf("q", out.q), RegionOf("k", out.k), RegionOf("v", out.v)},
                       {RegionOf("packed", in.packed), RegionOf("q_weight", in.q_weight),
                        RegionOf("k_weight", in.k_weight), RegionOf("positions", in.positions)});
}

template <typename T>
absl::Status ValidateBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                              const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                              PositionsIn positions) {
  HW_RETURN_IF_ERROR(CheckInputs(op, in, positions));
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
  const std::int64_t groups = op.layout.kv_heads();
  HW_RETURN_IF_ERROR(
      CheckRows("dq", gradients.dq, tokens, op.layout.query_heads() * dim, "[T, H D]"));
  HW_RETURN_IF_ERROR(CheckRows("dk", gradients.dk, tokens, groups * dim, "[T, G D]"));
  HW_RETURN_IF_ERROR(CheckRows("dv", gradients.dv, tokens, groups * dim, "[T, G D]"));
  HW_RETURN_IF_ERROR(
      CheckRows("dpacked", out.dpacked, tokens, op.layout.row_width(), "[T, (H + 2 G) D]"));
  for (const auto& [name, span] : {std::pair{"dq_weight_per_group", out.dq_weight_per_group},
                                   std::pair{"dk_weight_per_group", out.dk_weight_per_group}}) {
    if (HasWeight(op.norm)) {
      HW_RETURN_IF_ERROR(CheckRows(name, span, groups, dim, "[G, D]"));
    } else if (span.data != nullptr || span.rows != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: found [%d, %d], expected none, because the norm has no weight", name,
                          span.rows, span.width));
    }
  }
  return CheckDisjoint(
      {RegionOf("dpacked", out.dpacked), RegionOf("dq_weight_per_group", out.dq_weight_per_group),
       RegionOf("dk_weight_per_group", out.dk_weight_per_group)},
      {RegionOf("packed", in.packed), RegionOf("dq", gradients.dq), RegionOf("dk", gradients.dk),
       RegionOf("dv", gradients.dv), RegionOf("q_weight", in.q_weight),
       RegionOf("k_weight", in.k_weight), RegionOf("positions", in.positions)});
}

template <typename T>
absl::Status ValidateScratch(absl::Span<const float> scratch, const QkvInputs<T>& in,
                             const QkvGradients<T>& gradients, const PackedGradients<T>& out) {
  return CheckDisjoint(
      {RegionOf("weight_gradient_scratch", scratch)},
      {RegionOf("packed", in.packed), RegionOf("dq", gradients.dq), RegionOf("dk", gradients.dk),
       RegionOf("dv", gradients.dv), RegionOf("dpacked", out.dpacked),
       RegionOf("dq_weight_per_group", out.dq_weight_per_group),
       RegionOf("dk_weight_per_group", out.dk_weight_per_group)});
}

#define HW_INSTANTIATE(T)                                                                   \
  template absl::Status ValidateForward(const QkvPreparation&, const QkvInputs<T>&,         \
                                        const QkvOutputs<T>&, PositionsIn);                 \
  template absl::Status ValidateBackward(const QkvPreparation&, const QkvInputs<T>&,        \
                                         const QkvGradients<T>&, const PackedGradients<T>&, \
                                         PositionsIn);                                      \
  template absl::Status ValidateScratch(absl::Span<const float>, const QkvInputs<T>&,       \
                                        const QkvGradients<T>&, const PackedGradients<T>&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
HW_INSTANTIATE(double);
#undef HW_INSTANTIATE

}  // namespace headwise
