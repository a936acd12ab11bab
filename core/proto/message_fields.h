// message_fields: protocol buffers as a user's settings. Overrides by path, printing with nothing
// left out, files with errors that name the line, and the table of fields with the comments of the
// .proto file.
//
//   HW_RETURN_IF_ERROR(SetField("training.steps", "200", &config));
//   std::cout << PrintAllFields(config);
#ifndef HEADWISE_CORE_PROTO_MESSAGE_FIELDS_H_
#define HEADWISE_CORE_PROTO_MESSAGE_FIELDS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace headwise {

// Sets one field. `path` is dotted ("optimizer.muon.learning_rate"), `value` as in the text format
// (numbers, true/false, enum names; strings need no quotes). A repeated field takes a
// comma-separated list ("16,0" or "[16, 0]"), which replaces what was there; an empty value empties
// it. kInvalidArgument: an unknown field (names the nearest), a message where a value is needed, or
// a value that does not parse (names the type and, for enums, the choices). The message is
// unchanged on an error.
absl::Status SetField(const std::string& path, const std::string& value,
                      google::protobuf::Message* message);

// SetField for "path=value".
absl::Status ApplySetting(const std::string& setting, google::protobuf::Message* message);

// The text format with every field, zeros and empty strings included; parses back to an equal
// message.
std::string PrintAllFields(const google::protobuf::Message& message);

// (path, printed value) of every leaf field, in declaration order; a repeated field is one value,
// "[1, 2]".
std::vector<std::pair<std::string, std::string>> FieldValues(
    const google::protobuf::Message& message);

// Parses the text format. `source` (a path) begins the error, which names line, column and, for an
// unknown field, the nearest.
absl::Status ParseTextProto(const std::string& source, const std::string& text,
                            google::protobuf::Message* message);

// One row of the table of settings.
struct FieldHelp {
  std::string path;  // "training.steps"
  std::string
      type;  // "int64", "double", "bool", "string", "int64 list", or the enum's choices "FP32|BF16"
  std::string comment;  // one line, from the .proto file
};

// Every leaf field, in declaration order. `descriptor_set` is a serialized FileDescriptorSet with
// source info that holds message's file (the comments are empty if it is not in there).
std::vector<FieldHelp> ListFields(const google::protobuf::Message& message,
                                  const std::string& descriptor_set);

}  // namespace headwise

#endif  // HEADWISE_CORE_PROTO_MESSAGE_FIELDS_H_
