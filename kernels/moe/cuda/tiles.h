// Constants that kernels and the sizes of their scratch share. Internal to kernels/moe.
#ifndef HEADWISE_KERNELS_MOE_CUDA_TILES_H_
#define HEADWISE_KERNELS_MOE_CUDA_TILES_H_

namespace headwise::moe {

// Choices that a block of GroupByExpert counts, and orders.
inline constexpr int kChoicesOfTile = 1024;

}  // namespace headwise::moe

#endif  // HEADWISE_KERNELS_MOE_CUDA_TILES_H_
