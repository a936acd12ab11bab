// muse: trains, and generates text with, the reference model.
//
//   muse train                       muse_demo on the text that tools/setup.sh brought
//   muse generate --prompt "..."     continues it with the newest run
//   muse eval --run DIR --text FILE  loss and perplexity of a text
//   muse convert --from A --to B     Hugging Face folder <-> checkpoint
//   muse bench                       how fast it is here
//   muse info                        the presets
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/nearest_name.h"
#include "model/cli/commands.h"
#include "model/cli/exit_code.h"
#include "model/cli/paths.h"
#include "model/cli/version.h"

namespace headwise {
namespace {

// The parser's message, with the nearest name for a word that it did not know.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> names;
  const CLI::App* command = &app;
  for (const CLI::App* sub : app.get_subcommands({})) {
    names.push_back(sub->get_name());
    if (sub->parsed()) command = sub;
  }
  if (command != &app) names.clear();
  for (const CLI::Option* option : command->get_options())
    names.push_back("--" + option->get_single_name());
  if (command == &app && argc > 1 && argv[1][0] == '-') {
    return "unknown flag '" + std::string(argv[1]) + "' before a command; see muse --help";
  }
  if (command == &app && argc > 1) {
    return "unknown command '" + std::string(argv[1]) + "'" + DidYouMean(argv[1], names) +
           "; see muse --help";
  }
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr &&
      dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) {
    return message;
  }
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    word = word.substr(0, word.find('='));
    if (message.find(word) == std::string::npos) continue;
    const std::string hint = DidYouMean(word, names);
    if (!hint.empty()) return message + hint;
  }
  return message + "; see muse " + (command == &app ? "" : command->get_name() + " ") + "--help";
}

// A closed standard stream's number must not go to the next file that is opened, whose content
// would then be what we print.
void OpenClosedStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

int Main(int argc, char** argv) {
  OpenClosedStreams();
  CLI::App app("Headwise's reference model: trains, and generates text, head by head.", "muse");
  app.set_version_flag("--version", VersionText());
  app.require_subcommand(1);
  Action action;
  AddTrainCommand(app, &action);
  AddGenerateCommand(app, &action);
  AddEvalCommand(app, &action);
  AddBenchCommand(app, &action);
  AddConvertCommand(app, &action);
  AddInfoCommand(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "error: %s\n", UsageError(app, error, argc, argv).c_str());
    return kExitUsage;
  }
  if (const absl::Status status = EnterUserDirectory(); !status.ok()) return ReportError(status);
  if (const absl::Status status = action(); !status.ok()) return ReportError(status);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return ReportError(
        absl::DataLossError("standard output: cannot write all of it; expected a file with room or "
                            "a reader that stays"));
  }
  return kExitOk;
}

}  // namespace
}  // namespace headwise

// The code throws nothing itself; the libraries may, when memory runs out.
int main(int argc, char** argv) {
  try {
    return headwise::Main(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "error: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "error: an exception without a message\n");
  }
  return headwise::kExitInternal;
}
