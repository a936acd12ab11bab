#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headwise::internal {

CheckFailure::CheckFailure(const char* file, int line, const std::string& expression) {
  message_ << file << ":" << line << ": check failed: " << expression << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace headwise::internal
