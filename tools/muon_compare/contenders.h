// Whole Muon steps that can be timed one at a time, in any order: ours, and the standard form
// through oneDNN.
//
//   auto step = *MakeContender("head", "onednn", {.weights = 6, .heads = {8, 2, 64}, .width = 512},
//                              /*threads=*/2, gradient);
//   step->Run();                            // m, u, O, w: everything
//   std::vector<float> w = step->weight();
//
// All weights of a case are stacked: [weights * (H + 2G) * D, width], each in sections q, k, v.
// Momentum and weights are zero at first; momentum 0.95 with Nesterov, learning rate 1, no decay,
// UpdateScale::kAspect, kQuintic5.
#ifndef HEADWISE_TOOLS_MUON_COMPARE_CONTENDERS_H_
#define HEADWISE_TOOLS_MUON_COMPARE_CONTENDERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/heads/packed_qkv.h"

namespace headwise::muon_compare {

struct Case {
  std::int64_t weights = 1;
  HeadGeometry heads;
  std::int64_t width = 1;

  std::int64_t rows() const {
    return (heads.query_heads + 2 * heads.kv_heads) * heads.head_dim;  // of one weight
  }
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual void Run() = 0;
  virtual const std::vector<float>& weight() const = 0;
};

// Matrices of one shape, one after the other in the stacked rows of each weight.
struct MatrixGroup {
  std::int64_t first_row;  // within a weight
  std::int64_t count;      // within a weight
  std::int64_t rows;       // of each
};

// blocks: "head", "projection" or "whole".
std::vector<MatrixGroup> Groups(const std::string& blocks, const Case& c);

// implementation: "ours" or "onednn". Null if a name is unknown. The gradient has the case's size.
std::unique_ptr<Contender> MakeContender(const std::string& blocks,
                                         const std::string& implementation, const Case& c,
                                         int threads, std::vector<float> gradient);

// The second kind.
std::unique_ptr<Contender> MakeStandardForm(const std::vector<MatrixGroup>& groups, const Case& c,
                                            int threads, std::vector<float> gradient);

}  // namespace headwise::muon_compare

#endif  // HEADWISE_TOOLS_MUON_COMPARE_CONTENDERS_H_
