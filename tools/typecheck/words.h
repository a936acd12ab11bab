// What layouts and steps mean, in words; and numbers as people read them.
#ifndef HEADWISE_TOOLS_TYPECHECK_WORDS_H_
#define HEADWISE_TOOLS_TYPECHECK_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise::typecheck {

// "F32[E=256, N=8192]", "edp:P ep:S(E)" (axes that are R left out; "R" if all are). "unknown" and ""
// of an undefined type.
std::string ShapeText(const LayoutType& type);
std::string AxesText(const LayoutType& type);

std::string StepsText(const std::vector<Step>& steps);

// "1,288,490".
std::string WithCommas(std::int64_t n);
// "1.2 GiB (1,288,490,188)"; below 1024 the number alone.
std::string BytesText(std::int64_t bytes);

// A line each: why a parameter is on each axis what it is, and what becomes of its gradient there.
std::vector<std::string> ExplainParameter(const LayoutType& type);
// A line each: what a step of a boundary does, and why.
std::vector<std::string> ExplainSteps(const LayoutType& before, const std::vector<Step>& steps);
// What a parameter of this role or a boundary of this name is; "" if it has no entry.
std::string ExplainRole(const std::string& role);
std::string ExplainBoundary(const std::string& boundary);

// The five types and the letters of shapes, a line each.
std::vector<std::string> Legend();

// Words in lines of at most `width`, the later ones behind `indent` blanks besides. A longer word has
// a line of its own.
std::string Wrapped(const std::string& text, std::size_t indent, std::size_t width);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_WORDS_H_
