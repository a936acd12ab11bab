// qkv_preparation: what prepare_qkv does in a layer of a configuration.
//
//   const QkvPreparation op = QkvPreparationOf(config, layer, &table);
//   HW_RETURN_IF_ERROR(CheckUnfusedQkvOnCuda(config));
//
// Configurations are valid and resolved (model/config.h).
#ifndef HEADWISE_MODEL_QKV_PREPARATION_H_
#define HEADWISE_MODEL_QKV_PREPARATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/proto/config.pb.h"
#include "core/rope/rotary_table.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// The layout is that of all heads. `rotary` is not owned; a NoPE layer leaves it out.
QkvPreparation QkvPreparationOf(const ModelConfig& config, std::int64_t layer,
                                const RotaryTable* rotary);

// OK if CUDA kernels run attention.unfused_qkv of this configuration in every layer; else
// kUnimplemented, by what they do not take (kernels/prepare_qkv/cuda_unfused.h).
absl::Status CheckUnfusedQkvOnCuda(const ModelConfig& config);

}  // namespace headwise

#endif  // HEADWISE_MODEL_QKV_PREPARATION_H_
