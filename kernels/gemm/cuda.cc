#include "kernels/gemm/cuda.h"

#include "kernels/common/reductions.h"

namespace headwise {

std::int64_t LinearBackwardBiasScratch(std::int64_t tokens, std::int64_t width) {
  return (tokens + kTokenTile - 1) / kTokenTile * width;
}

}  // namespace headwise
