// HW_RETURN_IF_ERROR and HW_ASSIGN_OR_RETURN: hand an absl::Status to the caller.
//
//   HW_RETURN_IF_ERROR(Validate(config));
//   HW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
#ifndef HEADWISE_CORE_BASE_STATUS_MACROS_H_
#define HEADWISE_CORE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define HW_RETURN_IF_ERROR(expression)                                            \
  do {                                                                            \
    if (absl::Status hw_status = (expression); !hw_status.ok()) return hw_status; \
  } while (false)

#define HW_CONCAT_INNER_(a, b) a##b
#define HW_CONCAT_(a, b) HW_CONCAT_INNER_(a, b)
#define HW_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  declaration = *std::move(result)
#define HW_ASSIGN_OR_RETURN(declaration, expression) \
  HW_ASSIGN_OR_RETURN_(HW_CONCAT_(hw_result_, __LINE__), declaration, expression)

#endif  // HEADWISE_CORE_BASE_STATUS_MACROS_H_
