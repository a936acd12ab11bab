// tensor_copy: the elements of a TensorPiece, between a tensor of Hugging Face (F32, BF16 or F16)
// and a parameter of ours (fp32). Internal to model/hf.
#ifndef HEADWISE_MODEL_HF_TENSOR_COPY_H_
#define HEADWISE_MODEL_HF_TENSOR_COPY_H_

#include <string>

#include "absl/status/status.h"
#include "core/tensor/tensor.h"
#include "model/hf/tensor_map.h"

namespace headwise {

// Whether tensors of this type can be read and written; the other types are quantised, or would
// lose digits in fp32.
bool IsWeightType(DType dtype);

// kDataLoss names the first element that is NaN or infinite: "w[3, 5] is nan".
absl::Status CheckFinite(const std::string& name, const Tensor& tensor);

// Theirs to ours; exact. `ours` is the whole parameter.
void CopyIn(const TensorPiece& piece, const Tensor& theirs, float* ours);

// Ours to theirs, rounded to nearest, ties to even: exact for what CopyIn() brought. Elements that
// are too large become infinite: CheckFinite() finds them.
void CopyOut(const TensorPiece& piece, const float* ours, const Tensor& theirs);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_TENSOR_COPY_H_
