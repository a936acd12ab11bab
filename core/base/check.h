// HW_CHECK: assertions for programmer errors, on in release builds too.
//
//   HW_CHECK(rows >= 0);
//   HW_CHECK_EQ(x.width, layout.head_dim()) << "packed row";
//
// A failed check prints the expression, its operands, file and line, then aborts. What a *user* can
// get wrong (a file, a flag, a shape in a config) is never an HW_CHECK: return an absl::Status
// instead.
#ifndef HEADWISE_CORE_BASE_CHECK_H_
#define HEADWISE_CORE_BASE_CHECK_H_

#include <sstream>
#include <string>

namespace headwise::internal {

// Collects the message of a failed check; its destructor prints and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& expression);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();

  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Gives both arms of the macro's conditional the type void.
struct Voidify {
  void operator&(std::ostream&) {}
};

template <typename A, typename B>
std::string CheckOperands(const char* expression, const A& a, const B& b) {
  std::ostringstream s;
  s << expression << " (" << a << " vs " << b << ")";
  return s.str();
}

}  // namespace headwise::internal

#define HW_CHECK(condition)                       \
  (condition) ? (void)0                           \
              : ::headwise::internal::Voidify() & \
                    ::headwise::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define HW_CHECK_OP_(a, b, op)                                                           \
  ((a)op(b)) ? (void)0                                                                   \
             : ::headwise::internal::Voidify() &                                         \
                   ::headwise::internal::CheckFailure(                                   \
                       __FILE__, __LINE__,                                               \
                       ::headwise::internal::CheckOperands(#a " " #op " " #b, (a), (b))) \
                       .stream()

#define HW_CHECK_EQ(a, b) HW_CHECK_OP_(a, b, ==)
#define HW_CHECK_NE(a, b) HW_CHECK_OP_(a, b, !=)
#define HW_CHECK_LT(a, b) HW_CHECK_OP_(a, b, <)
#define HW_CHECK_LE(a, b) HW_CHECK_OP_(a, b, <=)
#define HW_CHECK_GT(a, b) HW_CHECK_OP_(a, b, >)
#define HW_CHECK_GE(a, b) HW_CHECK_OP_(a, b, >=)

#endif  // HEADWISE_CORE_BASE_CHECK_H_
