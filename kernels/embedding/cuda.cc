#include "kernels/embedding/cuda.h"

namespace headwise {

std::int64_t EmbeddingBackwardScratch(std::int64_t tokens, std::int64_t rows) {
  return tokens + rows + 1;  // the tokens in order; where each row's begin, and the end
}

}  // namespace headwise
