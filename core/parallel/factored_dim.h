// Dim: a dimension of a tensor as a product of named factors, outermost first.
//
//   const Dim rows = {{"G", 16}, Factor::Sum("slots", {{"q", {{"M", 8}}}, {"k", {}}, {"v", {}}}),
//                     Factor::Whole("D", 64)};     // packed QKV rows: 16 kv groups x 10 slots x 64
//   SizeOf(rows);                                  // 10240
//
// A mesh axis shards the first factor that is not yet fully sharded, and must divide what is left
// of it; so "tp divides the kv groups" is arithmetic, and heads are never cut. Factors of size 1
// are of no consequence and may be left out.
//
// Letters used in this repository: B groups of whole documents, L tokens of one such group, T = B L
// tokens, G kv groups, M query heads of a kv group (H/G), D head_dim, N width, F ffn width, V
// vocabulary, E experts, R rows of an expert.
#ifndef HEADWISE_CORE_PARALLEL_FACTORED_DIM_H_
#define HEADWISE_CORE_PARALLEL_FACTORED_DIM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace headwise {

struct Factor;
using Dim = std::vector<Factor>;
// A dimension that has been sharded, or not, is a Dim with axes: core/parallel/layout_type.h.

enum class FactorKind {
  kPlain,
  // No computation looks across its elements: groups of documents. Attention pairs queries and keys
  // of the same element only.
  kBatch,
  // Never sharded: an element of it alone means nothing to the kernels (head_dim).
  kWhole,
  // A concatenation. Never sharded, because a rank's share of [Q | K | V] is not a share of Q, K
  // and V each; unsharded it can be taken apart into its terms.
  kSum,
  // Sizes are estimates, and so are shares of it, rounded up: rows of experts, whose number depends
  // on routing.
  kRagged,
};

// A part of a sum factor: "q" of size 8 with the factors {M = 8}.
struct Term;

struct Factor {
  std::string name;
  std::int64_t size = 1;
  FactorKind kind = FactorKind::kPlain;
  // The order in which tokens lie: "" is the order of the data. Changed by ReorderTokens() only
  // (core/parallel/op_rules.h); tensors of different orders do not meet.
  std::string order = {};
  std::vector<Term> terms;  // of kSum, first to last

  static Factor Batch(std::string name, std::int64_t size);
  static Factor Whole(std::string name, std::int64_t size);
  static Factor Ragged(std::string name, std::int64_t size);
  // The size is the sum of the terms' sizes.
  static Factor Sum(std::string name, std::vector<Term> terms);

  // "G=16", "slots=8+1+1"; with an order "L=4096 (zigzag)".
  std::string ToString() const;
  friend bool operator==(const Factor& a, const Factor& b);
};

struct Term {
  std::string name;
  Dim factors;
  friend bool operator==(const Term& a, const Term& b) = default;
};

// The product of the factors; 1 for none.
std::int64_t SizeOf(const Dim& dim);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_FACTORED_DIM_H_
