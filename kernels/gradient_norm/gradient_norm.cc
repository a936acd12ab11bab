#include "kernels/gradient_norm/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/gradient_norm/row_squares.h"

namespace headwise {

GradientSummary SummarizeGradients(absl::Span<const NamedGradient> gradients, ThreadPool& pool) {
  std::vector<const NamedGradient*> by_name;
  for (const NamedGradient& g : gradients) by_name.push_back(&g);
  std::sort(by_name.begin(), by_name.end(),
            [](const NamedGradient* a, const NamedGradient* b) { return a->name < b->name; });

  std::vector<RowSquares> rows;
  for (const NamedGradient* g : by_name) rows.emplace_back(g->gradient);
  AddRowSquares(absl::MakeSpan(rows), pool);

  GradientSummary summary;
  std::vector<double> parameter_sums;
  for (std::size_t p = 0; p < by_name.size(); ++p) {
    parameter_sums.push_back(AdjacentPairSum(absl::MakeSpan(rows[p].sums)));
    if (summary.non_finite.empty() && rows[p].unusable) summary.non_finite = by_name[p]->name;
  }
  summary.norm = std::sqrt(AdjacentPairSum(absl::MakeSpan(parameter_sums)));
  return summary;
}

double ClipFactor(double norm, double clip_norm) {
  return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1.0;
}

}  // namespace headwise
