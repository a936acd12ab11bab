// The line of a source file that has a comment, so that tests can pin the line that a finding names.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_FIND_LINE_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_FIND_LINE_H_

#include <fstream>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace headwise::emulation {

// "PATH:LINE" of the one line that ends with "// HERE: NAME". The file is data of the test, its path
// from the repository's root.
inline std::string FindLine(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  HW_CHECK(file.good()) << path;
  const std::string mark = "// HERE: " + std::string(name);
  std::string line, found;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!std::string_view(line).ends_with(mark)) continue;
    HW_CHECK(found.empty()) << mark << " twice in " << path;
    found = path + ":" + std::to_string(number);
  }
  HW_CHECK(!found.empty()) << path << " has no " << mark;
  return found;
}

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_FIND_LINE_H_
