// The demo's troubled web as a program, for the acceptance checks: faster than a server in Python can be.
// usage: web_server FOLDER    with FOLDER/web.json (troubled_web.h); prints its port, serves until its input ends.

#include <cstdio>
#include <string>

#include "troubled_web/troubled_web.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: web_server FOLDER\n");
    return 2;
  }
  const auto web = darkroom::TroubledWeb::start(argv[1], 0, darkroom::LoopbackHosts::kAll);
  if (!web.is_ok()) {
    std::fprintf(stderr, "%s\n", web.status().to_string().c_str());
    return 1;
  }
  std::printf("%d\n", static_cast<int>((*web)->port()));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
