#include "model/hf/tensor_copy.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/dtype/bf16.h"
#include "core/dtype/fp16.h"

namespace headwise {
namespace {

float Load(float x) { return x; }
float Load(BFloat16 x) { return ToFloat(x); }
float Load(std::uint16_t bits) { return Float16ToFloat(bits); }

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = RoundToBFloat16(x); }
void Store(float x, std::uint16_t* to) { *to = RoundToFloat16(x); }

// Calls use(T*) with the tensor's elements.
template <typename Use>
void WithElements(const Tensor& tensor, const Use& use) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return use(static_cast<float*>(tensor.raw_data()));
    case DType::kBF16:
      return use(static_cast<BFloat16*>(tensor.raw_data()));
    default:
      HW_CHECK_EQ(tensor.dtype(), DType::kF16);
      return use(static_cast<std::uint16_t*>(tensor.raw_data()));
  }
}

// Calls visit(ours, theirs) with the offsets of every element.
template <typename Visit>
void ForEach(const TensorPiece& p, const Visit& visit) {
  for (std::int64_t i = 0; i < p.count[0]; ++i) {
    for (std::int64_t j = 0; j < p.count[1]; ++j) {
      const std::int64_t ours = p.our_begin + i * p.our_stride[0] + j * p.our_stride[1];
      const std::int64_t theirs = p.their_begin + i * p.their_stride[0] + j * p.their_stride[1];
      for (std::int64_t k = 0; k < p.count[2]; ++k) {
        visit(ours + k * p.our_stride[2], theirs + k * p.their_stride[2]);
      }
    }
  }
}

// "[3, 5]" of a flat position.
std::string Index(const Shape& shape, std::int64_t at) {
  std::string index;
  for (std::size_t d = shape.size(); d-- > 0;) {
    index = absl::StrCat(at % shape[d], index.empty() ? "" : ", ", index);
    at /= shape[d];
  }
  return absl::StrCat("[", index, "]");
}

}  // namespace

bool IsWeightType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

absl::Status CheckFinite(const std::string& name, const Tensor& tensor) {
  std::int64_t bad = -1;
  float value = 0;
  WithElements(tensor, [&](const auto* elements) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      if (std::isfinite(Load(elements[i]))) continue;
      bad = i;
      value = Load(elements[i]);
      return;
    }
  });
  if (bad < 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name, Index(tensor.shape(), bad), " is ",
                                          std::isnan(value) ? "nan"
                                          : value > 0       ? "inf"
                                                            : "-inf",
                                          "; expected finite ", Name(tensor.dtype()), " weights"));
}

void CopyIn(const TensorPiece& piece, const Tensor& theirs, float* ours) {
  WithElements(theirs, [&](const auto* elements) {
    ForEach(piece, [&](std::int64_t to, std::int64_t from) { ours[to] = Load(elements[from]); });
  });
}

void CopyOut(const TensorPiece& piece, const float* ours, const Tensor& theirs) {
  WithElements(theirs, [&](auto* elements) {
    ForEach(piece, [&](std::int64_t from, std::int64_t to) { Store(ours[from], &elements[to]); });
  });
}

}  // namespace headwise
