// tests/support/fake_s3.h as a program, for the acceptance checks (tests/acceptance). Prints HOST:PORT, then answers each line of its
// input with one line; ends with its input.
// usage: fake_s3_server everywhere|put-only|none SEED
//   faults PERCENT   so many of the requests fail: 503, 500, resets, lost replies, errors in 200, a few without an answer
//   hang 0|1         nothing is answered
//   region NAME      what is signed for another region is refused without a word of which
//   uploads          how many uploads are open
//   calls            how many requests came
//   faulted          how many of them failed
//   dump FOLDER      writes every object to FOLDER/KEY
//   load FOLDER PREFIX   makes every file below FOLDER the object PREFIX/NAME

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <random>
#include <sstream>
#include <string>

#include "support/fake_s3.h"

namespace darkroom {
namespace {

class FaultPlan {
 public:
  explicit FaultPlan(uint64_t seed) : chance_(seed) {}

  FakeS3::Fault draw(const FakeS3::Call& call) {
    using Fault = FakeS3::Fault;
    ++num_calls;
    if (hangs) {
      return Fault::kHang;
    }
    const std::lock_guard hold(mutex_);
    if (static_cast<int>(chance_() % 100) >= percent) {
      return Fault::kNone;
    }
    ++num_faults;
    constexpr Fault kFaults[] = {Fault::kSlowDown, Fault::kInternal, Fault::kReset, Fault::kLostReply, Fault::kInternalDone};
    const uint64_t drawn = chance_() % 100;
    if (drawn < 2) {
      return Fault::kHang;
    }
    const bool may_fail_in_200 = call.operation == "complete" || call.operation == "copy";
    return may_fail_in_200 && drawn < 25 ? Fault::kErrorIn200 : kFaults[drawn % std::size(kFaults)];
  }

  std::atomic<int> percent = 0;
  std::atomic<bool> hangs = false;
  std::atomic<int64_t> num_calls = 0;
  std::atomic<int64_t> num_faults = 0;

 private:
  std::mutex mutex_;
  std::mt19937_64 chance_;
};

std::string dump(FakeS3& fake, const std::filesystem::path& folder) {
  return fake.with_state([&](const FakeS3Objects& state) {
    for (const auto& [key, object] : state.objects) {
      const std::filesystem::path path = folder / key;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << object.bytes;
      if (!std::filesystem::exists(path) || std::filesystem::file_size(path) != object.bytes.size()) {
        return "cannot write " + path.string();
      }
    }
    return std::string("ok");
  });
}

std::string load(FakeS3& fake, const std::filesystem::path& folder, const std::string& prefix) {
  constexpr auto kFollow = std::filesystem::directory_options::follow_directory_symlink;
  return fake.with_state([&](FakeS3Objects& state) {
    std::error_code failure;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, kFollow, failure)) {
      if (entry.is_regular_file()) {
        std::ostringstream bytes;
        bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
        state.put(prefix + "/" + entry.path().lexically_relative(folder).string(), bytes.str(), "", false);
      }
    }
    return failure ? "cannot read " + folder.string() : std::string("ok");
  });
}

std::string obey(const std::string& line, FakeS3& fake, FaultPlan& plan) {
  std::istringstream words(line);
  std::string command;
  std::string value;
  std::string prefix;
  words >> command >> value >> prefix;
  if (command == "faults") {
    plan.percent = std::stoi(value);
  } else if (command == "hang") {
    plan.hangs = value == "1";
  } else if (command == "region") {
    fake.region = value;
    fake.tells_region = false;
  } else if (command == "age") {
    fake.with_state([&](FakeS3Objects& state) {
      for (auto& [id, upload] : state.uploads) {
        upload.initiated -= std::chrono::seconds(std::stoi(value));
      }
    });
  } else if (command == "uploads") {
    return std::to_string(fake.num_uploads());
  } else if (command == "calls") {
    return std::to_string(plan.num_calls);
  } else if (command == "faulted") {
    return std::to_string(plan.num_faults);
  } else if (command == "dump") {
    return dump(fake, value);
  } else if (command == "load") {
    return load(fake, value, prefix);
  } else {
    return "no such command";
  }
  return "ok";
}

int serve(const std::string& conditions, uint64_t seed) {
  using Conditions = FakeS3::Conditions;
  FaultPlan plan(seed);
  FakeS3 fake(conditions == "everywhere" ? Conditions::kEverywhere : conditions == "put-only" ? Conditions::kPutOnly : Conditions::kNone);
  fake.fault = [&plan](const FakeS3::Call& call) { return plan.draw(call); };
  fake.before = [&fake](const FakeS3::Call&) {  // Uploads are as old as they are.
    fake.with_state([](FakeS3Objects& state) { state.now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); });
  };
  std::printf("%s\n", fake.endpoint().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%s\n", obey(line, fake, plan).c_str());
    std::fflush(stdout);
  }
  std::_Exit(0);  // Whoever waits for an answer is cut off.
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: fake_s3_server everywhere|put-only|none SEED\n");
    return 2;
  }
  return darkroom::serve(argv[1], std::stoull(argv[2]));
}
