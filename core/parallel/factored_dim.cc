#include "core/parallel/factored_dim.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace headwise {

Factor Factor::Batch(std::string name, std::int64_t size) {
  return {.name = std::move(name), .size = size, .kind = FactorKind::kBatch};
}

Factor Factor::Whole(std::string name, std::int64_t size) {
  return {.name = std::move(name), .size = size, .kind = FactorKind::kWhole};
}

Factor Factor::Ragged(std::string name, std::int64_t size) {
  return {.name = std::move(name), .size = size, .kind = FactorKind::kRagged};
}

Factor Factor::Sum(std::string name, std::vector<Term> terms) {
  Factor factor = {.name = std::move(name), .size = 0, .kind = FactorKind::kSum};
  for (const Term& term : terms) factor.size += SizeOf(term.factors);
  factor.terms = std::move(terms);
  return factor;
}

std::string Factor::ToString() const {
  std::string text = absl::StrCat(name, "=");
  if (kind == FactorKind::kSum) {
    absl::StrAppend(&text, absl::StrJoin(terms, "+", [](std::string* out, const Term& term) {
      absl::StrAppend(out, SizeOf(term.factors));
    }));
  } else {
    absl::StrAppend(&text, size);
  }
  if (!order.empty()) absl::StrAppend(&text, " (", order, ")");
  return text;
}

bool operator==(const Factor& a, const Factor& b) {
  return a.name == b.name && a.size == b.size && a.kind == b.kind && a.order == b.order &&
         a.terms == b.terms;
}

std::int64_t SizeOf(const Dim& dim) {
  std::int64_t size = 1;
  for (const Factor& factor : dim) size *= factor.size;
  return size;
}

}  // namespace headwise
