// tutti: the command line. Exit codes: 0 done, 1 a fault while running, 2 an option, model or address that can't be
// used.
#include <cstdio>
#include <exception>

#include "app/options.h"
#include "app/serve.h"
#include "base/error.h"

int main(int argc, char** argv) {
  using namespace tutti;
  try {
    const app::Parsed parsed = app::parse_command_line(argc, argv);
    if (!parsed.serve) {
      std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
      return parsed.exit_code;
    }
    return app::serve(*parsed.serve);
  } catch (const OptionError& e) {
    std::fprintf(stderr, "tutti: %s\n", e.what());
    return 2;
  } catch (const LoadError& e) {
    std::fprintf(stderr, "tutti: can't load the model: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti: %s\n", e.what());
    return 1;
  }
}
