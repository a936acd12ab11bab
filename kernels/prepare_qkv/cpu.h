// The fast CPU path of prepare_qkv: the reference's bits, at the speed of memory.
//
// Threads take fixed tiles of tokens. Two kernels, chosen per call by shape alone:
//
//   cpu_four_heads.h  D = 64 or 128, and a rotary dimension that falls on whole vectors
//   cpu_any_head.h    every other even D from 2 to 512
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_H_

#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// Arguments as PrepareQkv's, and valid (validate.h). T is float or BFloat16.
template <typename T>
void PrepareQkvCpu(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                   ThreadPool& pool);

// Arguments as PrepareQkvBackward's, and valid. Scratch: 2 G D floats for every 64 tokens, and
// (H + G) D for each tile in flight.
template <typename T>
void PrepareQkvBackwardCpu(const QkvPreparation& op, const QkvInputs<T>& in,
                           const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                           ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_H_
