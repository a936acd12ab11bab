#include "tools/typecheck/folded_names.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace headwise::typecheck {
namespace {

// A name around its first numeric component.
struct Parts {
  std::string before, after;
  std::int64_t number = -1;
};

Parts Split(const std::string& name) {
  Parts parts;
  for (const std::string& component : std::vector<std::string>(absl::StrSplit(name, '.'))) {
    const bool digits =
        !component.empty() && component.find_first_not_of("0123456789") == std::string::npos;
    if (parts.number < 0 && digits && absl::SimpleAtoi(component, &parts.number)) continue;
    std::string& side = parts.number < 0 ? parts.before : parts.after;
    absl::StrAppend(&side, parts.number < 0 ? "" : ".", component, parts.number < 0 ? "." : "");
  }
  return parts;
}

// "0-2,5".
std::string Ranges(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    while (++it != numbers.end() && *it == last + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

}  // namespace

std::vector<FoldedName> FoldNames(const std::vector<NamedFact>& items) {
  struct Group {
    Parts parts;
    std::set<std::int64_t> numbers;
  };
  std::vector<FoldedName> folded;
  std::vector<Group> groups;
  std::map<std::vector<std::string>, std::size_t> group_of;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Parts parts = Split(items[i].name);
    const auto [at, is_first] = group_of.try_emplace(
        {parts.before, parts.after, parts.number < 0 ? "" : "numbered", items[i].fact},
        folded.size());
    if (is_first) {
      folded.push_back({.name = items[i].name, .first = i});
      groups.push_back({.parts = std::move(parts)});
      groups.back().numbers.insert(groups.back().parts.number);
    } else {
      groups[at->second].numbers.insert(parts.number);
    }
    ++folded[at->second].count;
  }
  for (std::size_t i = 0; i < folded.size(); ++i) {
    const Parts& parts = groups[i].parts;
    if (parts.number < 0) continue;
    folded[i].name = absl::StrCat(parts.before, Ranges(groups[i].numbers), parts.after);
  }
  return folded;
}

std::int64_t LayerOf(const std::string& name) { return Split(name).number; }

}  // namespace headwise::typecheck
