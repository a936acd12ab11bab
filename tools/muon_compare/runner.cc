// Answers compare.py: one line in, one line out, so that its contenders and PyTorch's take turns.
//
//   case WEIGHTS H G D WIDTH FILE        the gradient, raw fp32, stacked           -> ok
//   run BLOCKS IMPLEMENTATION THREADS    one step; the first is made, then timed   -> seconds
//   dump BLOCKS IMPLEMENTATION THREADS FILE    the weights after so many steps     -> ok
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/muon_compare/contenders.h"

namespace headwise::muon_compare {
namespace {

class Runner {
 public:
  // False at the end of the input, or at a line that means nothing.
  bool Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "case") return SetCase(words);
    std::string blocks, implementation;
    int threads = 0;
    words >> blocks >> implementation >> threads;
    if (!words || threads < 1) return false;
    auto& contender = contenders_[absl::StrCat(blocks, implementation, threads)];
    if (contender == nullptr) {
      contender = MakeContender(blocks, implementation, case_, threads, gradient_);
      if (contender == nullptr) return false;
    }
    if (command == "run") {
      const auto start = std::chrono::steady_clock::now();
      contender->Run();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      std::cout << seconds.count() << std::endl;
      return true;
    }
    std::string file;
    words >> file;
    const std::vector<float>& w = contender->weight();
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(w.data()),
               static_cast<std::streamsize>(w.size() * sizeof(float)));
    std::cout << "ok" << std::endl;
    return command == "dump";
  }

 private:
  bool SetCase(std::istringstream& words) {
    std::string file;
    words >> case_.weights >> case_.heads.query_heads >> case_.heads.kv_heads >>
        case_.heads.head_dim >> case_.width >> file;
    if (!words) return false;
    contenders_.clear();
    gradient_.resize(case_.weights * case_.rows() * case_.width);
    const bool read = static_cast<bool>(
        std::ifstream(file, std::ios::binary)
            .read(reinterpret_cast<char*>(gradient_.data()),
                  static_cast<std::streamsize>(gradient_.size() * sizeof(float))));
    std::cout << (read ? "ok" : "cannot read the gradient") << std::endl;
    return read;
  }

  Case case_;
  std::vector<float> gradient_;
  std::map<std::string, std::unique_ptr<Contender>> contenders_;
};

}  // namespace
}  // namespace headwise::muon_compare

int main() {
  headwise::muon_compare::Runner runner;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (!runner.Answer(line)) {
      std::cerr << "runner: cannot do '" << line << "'\n";
      return 1;
    }
  }
  return 0;
}
