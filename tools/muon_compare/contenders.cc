#include "tools/muon_compare/contenders.h"

#include <utility>

#include "core/base/check.h"
#include "core/heads/head_blocks.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise::muon_compare {
namespace {

class Ours final : public Contender {
 public:
  Ours(Granularity granularity, const Case& c, int threads, std::vector<float> gradient)
      : blocks_(*HeadBlocks::FromPacked(*PackedQkv::Sectioned(c.heads)).Coarsen(granularity)),
        gradient_(std::move(gradient)),
        momentum_(gradient_.size()),
        weight_(gradient_.size()),
        pool_(threads) {
    for (std::int64_t i = 0; i < c.weights; ++i) {
      const std::int64_t begin = i * c.rows() * c.width;
      steps_.push_back({.weight = {weight_.data() + begin, c.rows(), c.width},
                        .momentum = {momentum_.data() + begin, c.rows(), c.width},
                        .gradient = {gradient_.data() + begin, c.rows(), c.width},
                        .blocks = &blocks_});
    }
  }

  void Run() override {
    HW_CHECK(MuonStep<float>({.learning_rate = 1, .momentum = 0.95}, steps_, pool_).ok());
  }
  const std::vector<float>& weight() const override { return weight_; }

 private:
  const HeadBlocks blocks_;
  std::vector<float> gradient_, momentum_, weight_;
  std::vector<MuonWeight<float>> steps_;
  ThreadPool pool_;
};

}  // namespace

std::vector<MatrixGroup> Groups(const std::string& blocks, const Case& c) {
  const std::int64_t queries = c.heads.query_heads, groups = c.heads.kv_heads;
  const std::int64_t dim = c.heads.head_dim;
  if (blocks == "head") return {{0, queries + 2 * groups, dim}};
  if (blocks == "projection") return {{0, 1, queries * dim}, {queries * dim, 2, groups * dim}};
  if (blocks == "whole") return {{0, 1, c.rows()}};
  return {};
}

std::unique_ptr<Contender> MakeContender(const std::string& blocks,
                                         const std::string& implementation, const Case& c,
                                         int threads, std::vector<float> gradient) {
  const std::vector<MatrixGroup> groups = Groups(blocks, c);
  if (groups.empty()) return nullptr;
  HW_CHECK_EQ(static_cast<std::int64_t>(gradient.size()), c.weights * c.rows() * c.width);
  if (implementation == "onednn") {
    return MakeStandardForm(groups, c, threads, std::move(gradient));
  }
  if (implementation != "ours") return nullptr;
  const Granularity granularity = blocks == "head"         ? Granularity::kHead
                                  : blocks == "projection" ? Granularity::kProjection
                                                           : Granularity::kWholeMatrix;
  return std::make_unique<Ours>(granularity, c, threads, std::move(gradient));
}

}  // namespace headwise::muon_compare
