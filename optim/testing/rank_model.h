// The parameters of a made-up decoder layer on one rank and on many, for tests of the optimizer: as
// a decoder has them, with layouts and head blocks of the share. No forward pass.
//
//   const RankModel model({.mesh = *Mesh::Parse("dp=2,tp=2"), .heads = "tp"});
//   auto whole = model.Whole(Device::kCpu);            // one rank's, without layouts
//   auto mine = model.Share(rank, whole);              // shares of the same values
#ifndef HEADWISE_OPTIM_TESTING_RANK_MODEL_H_
#define HEADWISE_OPTIM_TESTING_RANK_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/heads/packed_qkv.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/mesh.h"
#include "optim/parameter.h"

namespace headwise {

struct RankModelOptions {
  Mesh mesh = {};
  HeadGeometry geometry = {.query_heads = 8, .kv_heads = 4, .head_dim = 6};
  std::string kv_axis = "tp";           // what cuts kv groups
  std::string axis = "tp";              // what cuts query heads, ffn width and vocabulary
  std::string experts_in = "S(1)@tp";   // [E=4, F=8, N]: cut by F, or "expert: S(0)@ep"
  std::string experts_out = "S(2)@tp";  // [E=4, N, F=8]
  std::string norm = "I@tp";            // of norms and the router
};

using Parameters = std::vector<std::unique_ptr<Parameter>>;

class RankModel {
 public:
  explicit RankModel(RankModelOptions options);

  // By parameter, in the order of Whole() and Share().
  const std::vector<LayoutType>& types() const { return types_; }

  // Random values; gradients are zero. Names:
  //   AdamW's      embedding [24, 20], norm [20], wqkv_bias, router [4, 20]
  //   Muon's       wqkv and gate (head blocks), wo, w1 [12, 20], w2 [20, 12], experts_in, experts_out
  //   balancing    balancing_bias [4]
  Parameters Whole() const;
  // Shares of the values and gradients of `whole`.
  Parameters Share(std::int64_t rank, const Parameters& whole) const;
  // The shapes and layouts of the shares.
  Parameters Meta(std::int64_t rank) const;

  // Random gradients (counts, for the balancing bias) of the whole; and its share of them.
  static void FillGradients(const Parameters& whole, std::uint64_t seed);
  void ShareGradients(std::int64_t rank, const Parameters& whole, const Parameters& share) const;

 private:
  Parameters Make(std::int64_t query_shares, std::int64_t kv_shares) const;

  RankModelOptions options_;
  std::vector<LayoutType> types_;
};

std::vector<Parameter*> Pointers(const Parameters& parameters);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_TESTING_RANK_MODEL_H_
