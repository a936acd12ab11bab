// FoldNames: a model's parts, with layers that are alike as one line.
//
//   FoldNames({{"head.in", "R"}, {"layers.0.ffn.w1", "S"}, {"layers.1.ffn.w1", "S"}});
//   // "head.in", 1, item 0;  "layers.0-1.ffn.w1", 2, item 1
#ifndef HEADWISE_TOOLS_TYPECHECK_FOLDED_NAMES_H_
#define HEADWISE_TOOLS_TYPECHECK_FOLDED_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headwise::typecheck {

struct NamedFact {
  std::string name;  // a path with dots
  std::string fact;  // what is said of it
};

struct FoldedName {
  std::string name;        // "layers.0-2,5.ffn.w1"
  std::int64_t count = 0;  // items
  std::size_t first = 0;   // the first of them
};

// Items whose names differ in their first numeric component only, and of which the same is said,
// become one, where the first of them stood.
std::vector<FoldedName> FoldNames(const std::vector<NamedFact>& items);

// The number of a path's first numeric component; -1 without one.
std::int64_t LayerOf(const std::string& name);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_FOLDED_NAMES_H_
