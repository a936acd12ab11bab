// json_text: JSON files from outside, as Hugging Face's libraries write them.
//
//   HW_ASSIGN_OR_RETURN(const nlohmann::json config, ParseJsonObject(text));
//
// Read with Python's habits: NaN, Infinity and -Infinity are values (they become null), and of a
// repeated key the last counts.
#ifndef HEADWISE_CORE_IO_JSON_TEXT_H_
#define HEADWISE_CORE_IO_JSON_TEXT_H_

#include <cstdint>
#include <exception>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

// A bound that lets nlohmann::json be copied and printed, which recurse.
inline constexpr int kMaxJsonDepth = 1000;

// kInvalidArgument: more than 64 MiB, text that is not JSON (says where it stops), more than
// kMaxJsonDepth levels, or a document that is no object.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text);

// What nlohmann::json::parse threw, as one printable line: "parse error at line 1, column 2: ...".
std::string JsonProblem(const std::exception& error);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_JSON_TEXT_H_
