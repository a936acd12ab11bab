#include "kernels/common/testing/pairwise.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/base/check.h"

namespace headwise {
namespace {

// Which pairs (level a of factor f, level b of factor g), f < g, have met.
class Pairs {
 public:
  explicit Pairs(const std::vector<int>& levels) : levels_(levels) {
    for (std::size_t f = 0; f < levels.size(); ++f) {
      HW_CHECK_GE(levels[f], 1);
      for (std::size_t g = 0; g < levels.size(); ++g) {
        met_.emplace_back(f < g ? levels[f] * levels[g] : 0, false);
        if (f < g) missing_ += levels[f] * levels[g];
      }
    }
  }

  int missing() const { return missing_; }
  bool Missing(int f, int a, int g, int b) const {
    return f < g ? !met_[f * levels_.size() + g][a * levels_[g] + b] : Missing(g, b, f, a);
  }
  void Add(const std::vector<int>& row) {
    for (std::size_t f = 0; f < row.size(); ++f) {
      for (std::size_t g = f + 1; g < row.size(); ++g) {
        auto met = met_[f * levels_.size() + g].begin() + row[f] * levels_[g] + row[g];
        if (!*met) --missing_;
        *met = true;
      }
    }
  }
  // A pair that has not met, found from a random start: (f, a, g, b). missing() > 0.
  std::vector<int> AnyMissing(std::uint64_t start) const {
    const std::size_t n = met_.size();
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t i = (start + k) % n;
      const auto it = std::find(met_[i].begin(), met_[i].end(), false);
      if (it == met_[i].end()) continue;
      const int at = static_cast<int>(it - met_[i].begin());
      const int f = static_cast<int>(i / levels_.size()), g = static_cast<int>(i % levels_.size());
      return {f, at / levels_[g], g, at % levels_[g]};
    }
    HW_CHECK(false) << "every pair has met";
    return {};
  }

 private:
  const std::vector<int>& levels_;
  std::vector<std::vector<bool>> met_;  // of factors (f, g), at f * n + g
  int missing_ = 0;
};

}  // namespace

std::vector<std::vector<int>> PairwiseDesign(const std::vector<int>& levels, std::uint64_t seed) {
  HW_CHECK_GE(levels.size(), 2u);
  std::mt19937_64 random(seed);
  Pairs pairs(levels);
  std::vector<std::vector<int>> rows;
  const int n = static_cast<int>(levels.size());
  while (pairs.missing() > 0) {
    // One missing pair, then each factor in random order takes the level that meets most new ones.
    const std::vector<int> pair = pairs.AnyMissing(random());
    std::vector<int> row(n, -1), order;
    row[pair[0]] = pair[1];
    row[pair[2]] = pair[3];
    for (int f = 0; f < n; ++f) {
      if (row[f] < 0) order.push_back(f);
    }
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (const int f : order) {
      int best = -1;
      const int start = static_cast<int>(random() % levels[f]);
      for (int k = 0; k < levels[f]; ++k) {
        const int level = (start + k) % levels[f];
        int gain = 0;
        for (int g = 0; g < n; ++g) {
          if (row[g] >= 0 && g != f && pairs.Missing(f, level, g, row[g])) ++gain;
        }
        if (gain > best) best = gain, row[f] = level;
      }
    }
    pairs.Add(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace headwise
