// A Report as JSON, for machines.
//
//   {"model": "muse_spark", "mesh": {"ranks": 64, "dense": [{"axis": "dp", "size": 4}, ...], ...},
//    "accepted": true, "parameters": [...], "activations": [...], "gradients": [...],
//    "communication": [...], "memory": [...], "mistakes": [], "other_flags": [], ...}
//
// The keys are always there; what a mistake leaves unknown is an empty list. Bytes are integers, of
// one rank.
#ifndef HEADWISE_TOOLS_TYPECHECK_JSON_H_
#define HEADWISE_TOOLS_TYPECHECK_JSON_H_

#include <string>

#include "tools/typecheck/report.h"

namespace headwise::typecheck {

struct JsonOptions {
  bool explain = false;  // parameters and activations have "explanation", a list of sentences
};

std::string ReportJson(const Report& report, const JsonOptions& options);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_JSON_H_
