#include "core/base/printable.h"

namespace headwise {

std::string Printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      const unsigned char byte = static_cast<unsigned char>(c);
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return result;
}

}  // namespace headwise
