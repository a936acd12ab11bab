// NearestName: what a user probably meant by a name that does not exist.
#ifndef HEADWISE_CORE_BASE_NEAREST_NAME_H_
#define HEADWISE_CORE_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace headwise {

// The candidate with the smallest edit distance (insertions, deletions, substitutions, swaps of
// neighbours) to `name`, the first of equals; empty if none is closer than half of the longer
// name's length.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// "; did you mean 'train'?", or an empty string.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace headwise

#endif  // HEADWISE_CORE_BASE_NEAREST_NAME_H_
