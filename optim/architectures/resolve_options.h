// ResolveOptions: what a caller may choose about the head blocks of an outside checkpoint.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_OPTIONS_H_
#define HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_OPTIONS_H_

#include "core/heads/head_pattern.h"

namespace headwise {

struct ResolveOptions {
  // Whether the parts of a latent-attention head are one block or one block each.
  MlaHeads mla_heads = MlaHeads::kWhole;
  // Whether an attention output projection is cut into its heads, which lie on its columns.
  bool output_columns = false;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_OPTIONS_H_
