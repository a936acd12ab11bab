// Every operation of model/ops.h derives the layouts of its results by a rule, or stands below with
// the reason why it need not. An operation without a rule would hand on whatever layout its tensors
// happen to have, and the checker would know nothing of it.
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

const std::map<std::string, std::string>& WithoutRules() {
  static const auto* reasons = new std::map<std::string, std::string>{
      {"LinearBackwardFromMaster", "made of other operations"},
      {"Convert", "elements alone; its callers give the layout"},
      {"CopyRows", "decoding has no layouts"},
      {"ScatterRows", "decoding has no layouts"},
      {"TransformLogitsInPlace", "decoding has no layouts"},
      {"Cross", "a boundary: the plan's steps give the layout"},
      {"CrossBackward", "a boundary: the plan's steps give the layout"},
      {"CrossGradient", "a boundary: the plan's steps give the layout"},
      {"CopyGradient", "a copy that keeps the layout"},
      {"TokensOfAllRanks", "a number of the layout"},
      {"NoteDual", "a check of layouts"},
      {"Communicates", "a question about the plan"},
      {"CheckSegments", "a check of what a batch brings"},
      {"RowsOf", "a part of its argument"},
  };
  return *reasons;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path Sources() {
  return std::filesystem::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") /
         "model";
}

// The name of the function that a line at the left margin begins to declare or define; "" if it
// does not. "Tensor Add(const OpContext& ctx, ...": "Add".
std::string FunctionOf(const std::string& line) {
  const std::size_t open = line.find('(');
  if (open == std::string::npos || open == 0 || !(std::isalpha(line[0]) || line[0] == '[')) {
    return "";
  }
  std::size_t begin = open;
  while (begin > 0 && (std::isalnum(line[begin - 1]) || line[begin - 1] == '_')) --begin;
  // A type stands before the name.
  if (begin < 2 || begin == open || line[begin - 1] != ' ') return "";
  if (line.rfind("using ", 0) == 0 || line.rfind("struct ", 0) == 0) return "";
  return line.substr(begin, open - begin);
}

std::set<std::string> DeclaredOps() {
  std::set<std::string> names;
  bool inside = false;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(Read(Sources() / "ops.h"), '\n'))) {
    if (line == "namespace ops {") inside = true;
    if (line == "}  // namespace ops") inside = false;
    if (!inside) continue;
    if (const std::string name = FunctionOf(line); !name.empty()) names.insert(name);
  }
  return names;
}

// The bodies of the functions that model/ops defines, by name.
std::map<std::string, std::string> Bodies() {
  std::map<std::string, std::string> bodies;
  for (const auto& file : std::filesystem::directory_iterator(Sources() / "ops")) {
    if (file.path().extension() != ".cc") continue;
    std::string name;
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(Read(file.path()), '\n'))) {
      if (name.empty()) name = FunctionOf(line);
      if (!name.empty()) bodies[name] += line + "\n";
      if (line == "}" || absl::EndsWith(line, ") {}")) name.clear();
    }
  }
  return bodies;
}

TEST(Ops, DeriveTheirLayoutsOrNeedNone) {
  const std::set<std::string> declared = DeclaredOps();
  EXPECT_GT(declared.size(), 40u);
  const std::map<std::string, std::string> bodies = Bodies();
  for (const std::string& name : declared) {
    ASSERT_TRUE(bodies.contains(name)) << name << " is not defined in model/ops";
    const bool derives = absl::StrContains(bodies.at(name), " Derive(");
    EXPECT_NE(derives, WithoutRules().contains(name))
        << name
        << (derives ? " derives layouts: take it off the list"
                    : " derives no layout: give it a rule (core/parallel/rules), or a "
                      "reason here");
  }
}

TEST(Ops, NothingIsExcusedThatDoesNotExist) {
  const std::set<std::string> declared = DeclaredOps();
  for (const auto& [name, reason] : WithoutRules()) {
    EXPECT_TRUE(declared.contains(name)) << name;
    EXPECT_NE(reason, "") << name;
  }
}

}  // namespace
}  // namespace headwise
