// A Report for a terminal of 110 columns.
#ifndef HEADWISE_TOOLS_TYPECHECK_TEXT_H_
#define HEADWISE_TOOLS_TYPECHECK_TEXT_H_

#include <string>

#include "tools/typecheck/report.h"

namespace headwise::typecheck {

struct TextOptions {
  bool explain = false;  // why each parameter and boundary is what it is
};

// Model and mesh; then what is wrong and the fixes, or, if nothing is: parameters, activations,
// gradients, communication, memory.
std::string ReportText(const Report& report, const TextOptions& options);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_TEXT_H_
