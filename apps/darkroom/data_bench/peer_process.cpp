#include "peer_process.h"

#include <cstring>

#include "child_process/child_process.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

constexpr size_t kMaxAnswerBytes = 65536;

}  // namespace

Result<std::unique_ptr<PeerProcess>> PeerProcess::start(const std::vector<std::string>& command) {
  DARKROOM_ASSIGN_OR_RETURN(const Child child, start_child(command, {.has_input = true, .has_own_group = true}));
  std::unique_ptr<PeerProcess> process(new PeerProcess(child.pid, fdopen(child.input, "w"), fdopen(child.output, "r")));
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json offer, process->read_answer());
  for (const auto& peer : offer.value("peers", nlohmann::json::array())) {
    process->peers_.push_back({peer.value("name", ""), peer.value("version", "")});
  }
  process->missing_ = offer.value("missing", std::map<std::string, std::string>());
  return process;
}

PeerProcess::~PeerProcess() {
  std::fclose(input_);
  std::fclose(output_);
  static_cast<void>(wait_for_child(child_));  // Its answers are read; how it ends says nothing about them.
}

Result<PeerProcess::Run> PeerProcess::run(size_t index) {
  std::fprintf(input_, "%zu\n", index);
  if (std::fflush(input_) != 0) {
    return Status::unavailable("the peers' program has ended before run of peer:", index);
  }
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json answer, read_answer());
  if (!answer.contains("seconds") || !answer["seconds"].is_number() || !answer.contains("digest") || !answer["digest"].is_string()) {
    return Status::unavailable("the peers' program must answer with seconds and digest, it said:", answer.dump());
  }
  return Run{answer["seconds"].get<double>(), answer["digest"].get<std::string>()};
}

Result<nlohmann::json> PeerProcess::read_answer() {
  std::string line(kMaxAnswerBytes, '\0');
  if (std::fgets(line.data(), static_cast<int>(line.size()), output_) == nullptr) {
    return Status::unavailable("the peers' program has ended without an answer; what it wrote is above");
  }
  line.resize(std::strlen(line.c_str()));
  auto answer = parse_json(line);
  if (!answer.is_object()) {
    return Status::unavailable("the peers' program must answer with a line of JSON, it said:", line);
  }
  return answer;
}

}  // namespace darkroom
