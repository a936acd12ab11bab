#include "core/io/json_text.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/printable.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

// Python writes NaN, Infinity and -Infinity for such floats, outside of what JSON allows. *depth
// gets the deepest nesting.
std::string WithoutPythonFloats(absl::string_view text, int* depth) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  int level = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      result.push_back(c);
      if (c == '\\' && i + 1 < text.size()) result.push_back(text[++i]);
      if (c == '"') in_string = false;
      continue;
    }
    bool replaced = false;
    for (const absl::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i, word.size()) == word) {
        result += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (replaced) continue;
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') *depth = std::max(*depth, ++level);
    if (c == '}' || c == ']') --level;
    result.push_back(c);
  }
  return result;
}

}  // namespace

std::string JsonProblem(const std::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
  const std::string what = error.what();
  const std::size_t bracket = what.find("] ");
  return Printable(what.substr(bracket == std::string::npos ? 0 : bracket + 2).substr(0, 160));
}

absl::StatusOr<json> ParseJsonObject(absl::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a configuration of ", text.size(),
                                                   " bytes; at most ", kMaxBytes,
                                                   " are read; is this a config.json?"));
  }
  int depth = 0;
  const std::string strict = WithoutPythonFloats(text, &depth);
  if (depth > kMaxJsonDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("nested ", depth, " levels deep; expected at most ", kMaxJsonDepth));
  }
  json document;
  try {
    document = json::parse(strict);
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", JsonProblem(error)));
  }
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JSON object, found ", document.type_name()));
  }
  return document;
}

}  // namespace headwise
