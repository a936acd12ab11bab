// Printable: text from outside (names in files, excerpts of what could not be parsed) for a terminal
// or a log, on one line.
#ifndef HEADWISE_CORE_BASE_PRINTABLE_H_
#define HEADWISE_CORE_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace headwise {

// Printable ASCII, quotes and backslashes included, stays as it is; every other byte becomes \xNN.
std::string Printable(std::string_view text);

}  // namespace headwise

#endif  // HEADWISE_CORE_BASE_PRINTABLE_H_
