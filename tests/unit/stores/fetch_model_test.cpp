#include "darkroom/stores/fetch_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "hub_caller.h"
#include "stores/model_files.h"
#include "support/forwarding_files.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

std::vector<std::string> chosen(const std::vector<std::string>& paths, const std::vector<std::string>& parts) {
  std::vector<HubFile> tree;
  for (const std::string& path : paths) {
    tree.push_back({.path = path});
  }
  const auto files = choose_model_files(tree, parts, "hf://org/model");
  EXPECT_TRUE(files.is_ok()) << files.status().to_string();
  std::vector<std::string> names;
  for (const HubFile& file : files.is_ok() ? *files : std::vector<HubFile>()) {
    names.push_back(file.path);
  }
  return names;
}

Status refused(const std::vector<std::string>& paths, const std::vector<std::string>& parts) {
  std::vector<HubFile> tree;
  for (const std::string& path : paths) {
    tree.push_back({.path = path});
  }
  return choose_model_files(tree, parts, "hf://org/model").status();
}

TEST(model_files, are_those_of_the_parts) {
  EXPECT_THAT(chosen({"README.md", "model_index.json", "v1.safetensors", "unet/config.json", "unet/w.safetensors", "unet/w.bin",
                      "unet/deep/x.json", "tokenizer/merges.txt", "tokenizer/vocab.json", "tokenizer/a.py", "other/config.json"},
                     {"tokenizer", "unet"}),
              ElementsAre("model_index.json", "tokenizer/merges.txt", "tokenizer/vocab.json", "unet/config.json", "unet/w.safetensors"));
}

TEST(model_files, variants_are_taken_where_there_is_nothing_else) {
  EXPECT_THAT(chosen({"model_index.json", "unet/w.fp16.safetensors", "unet/w.non_ema.safetensors", "unet/w.safetensors"}, {"unet"}),
              ElementsAre("model_index.json", "unet/w.safetensors"));
  EXPECT_THAT(chosen({"model_index.json", "unet/w.bf16.safetensors", "unet/w.fp16.safetensors"}, {"unet"}),
              ElementsAre("model_index.json", "unet/w.fp16.safetensors"));
  EXPECT_THAT(chosen({"model_index.json", "unet/w.non_ema.safetensors"}, {"unet"}),
              ElementsAre("model_index.json", "unet/w.non_ema.safetensors"));
}

TEST(model_files, shards_stay_with_their_index) {
  const std::vector<std::string> plain = {"model_index.json", "unet/w-00001-of-00002.safetensors", "unet/w-00002-of-00002.safetensors",
                                          "unet/w.safetensors.index.json"};
  const std::vector<std::string> half = {"unet/w.fp16-00001-of-00002.safetensors", "unet/w.fp16-00002-of-00002.safetensors"};
  std::vector<std::string> all = plain;
  all.insert(all.end(), half.begin(), half.end());
  all.emplace_back("unet/w.safetensors.index.fp16.json");
  all.emplace_back("unet/w-00001-of-00001.bf16.safetensors");
  EXPECT_EQ(chosen(all, {"unet"}), plain);
  for (const std::string index : {"unet/w.safetensors.index.fp16.json", "unet/w.fp16.safetensors.index.json"}) {
    EXPECT_EQ(chosen({"model_index.json", half[0], half[1], index}, {"unet"}).size(), 4u) << index;
  }
}

TEST(model_files, refuse_what_is_no_model_or_pickle_alone) {
  EXPECT_THAT(refused({"unet/w.safetensors"}, {"unet"}).message(), HasSubstr("model_index.json"));
  const Status pickle = refused({"model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.bin"}, {"unet"});
  EXPECT_EQ(pickle.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(pickle.message(), AllOf(HasSubstr("pickle"), HasSubstr("unet/diffusion_pytorch_model.bin")));
  EXPECT_THAT(refused({"model_index.json"}, {"vae"}).message(), HasSubstr("vae"));
}

Result<std::vector<HubFile>> network_files(const std::vector<std::string>& paths) {
  std::vector<HubFile> tree;
  for (const std::string& path : paths) {
    tree.push_back({.path = path});
  }
  return choose_network_files(tree, "hf://org/clip");
}

TEST(model_files, of_a_single_network_are_those_at_its_top) {
  const auto found = network_files({"README.md", "config.json", "flax_model.msgpack", "merges.txt", "model.fp16.safetensors",
                                    "model.safetensors", "onnx/config.json", "onnx/model.safetensors", "pytorch_model.bin", "vocab.json"});
  std::vector<std::string> names;
  for (const HubFile& file : *found) {
    names.push_back(file.path);
  }
  EXPECT_THAT(names, ElementsAre("config.json", "merges.txt", "model.safetensors", "vocab.json"));
}

TEST(model_files, of_a_network_without_safetensors_are_refused) {
  EXPECT_THAT(network_files({"config.json", "pytorch_model.bin"}).status().message(), HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(network_files({"config.json", "merges.txt"}).status().message(), HasSubstr("no safetensors weights beside config.json"));
}

TEST(model_files, parts_are_what_the_index_names) {
  const auto parts = read_model_parts(R"({"_class_name":"X","unet":["diffusers","U"],"safety_checker":[null,null],"requires":false,
                                          "tokenizer":["transformers","T"],"a/b":["x","y"],"_diffusers_version":["1","2"]})",
                                      "m");
  EXPECT_THAT(parts.value(), ElementsAre("tokenizer", "unet"));
  EXPECT_EQ(read_model_parts("[]", "m").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_model_parts("{\"unet\"", "m").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_model_parts("{}", "m").status().code(), StatusCode::kFailedPrecondition);
}

class fetch_model_test : public HubTest {
 protected:
  fetch_model_test() { commit_ = hub_.add("models/org/sd", "main", model()); }

  FakeHub::Files model() const {
    return {{"model_index.json", {R"({"unet":["diffusers","U"],"tokenizer":["transformers","T"]})"}},
            {"README.md", {"x"}},
            {"unet/config.json", {"{}"}},
            {"unet/w.safetensors", {large_, true}},
            {"unet/w.bin", {"pickle"}},
            {"tokenizer/merges.txt", {"a b\n"}},
            {"tokenizer/vocab.json", {""}}};
  }
  Result<FetchedModel> fetch(FileSystem& files, const std::string& uri = "hf://org/sd", std::stop_token stop = {}) {
    HubClient hub = client(token_);
    const auto store = make_hub_store(hub, system_clock());
    told_ = {};
    const ModelFetchOptions options{.chunk_bytes = 1000, .on_progress = [this](const FetchedModel& so_far) { told_ = so_far; }};
    return fetch_model(hub, *store, HubUri::parse(uri).value(), files, "/models/sd", options, stop);
  }
  /// Path (below /models) and bytes of all that there is.
  static std::map<std::string, std::string> contents(FileSystem& files) {
    std::map<std::string, std::string> found;
    const std::vector<FileInfo> listed = files.list_tree("/models").value();
    for (const FileInfo& file : listed) {
      found[file.path.substr(8)] = read_file(files, file.path).value();
    }
    return found;
  }
  std::map<std::string, std::string> whole() const {
    std::map<std::string, std::string> want;
    for (const char* path :
         {"model_index.json", "unet/config.json", "unet/w.safetensors", "tokenizer/merges.txt", "tokenizer/vocab.json"}) {
      want[std::string("sd/") + path] = model().at(path).bytes;
    }
    return want;
  }
  static constexpr const char* kPart = "/models/_tmp.sd.fetch/unet/w.safetensors";

  std::string commit_;
  std::optional<std::string> token_;
  FetchedModel told_;  // Last, of the last call.
};

TEST_F(fetch_model_test, copies_the_folder_and_nothing_else) {
  MemoryFileSystem files;
  const FetchedModel fetched = fetch(files).value();
  EXPECT_EQ(contents(files), whole());
  EXPECT_EQ(fetched.commit, commit_);
  EXPECT_EQ(fetched.num_files, 5);
  EXPECT_EQ(fetched.num_resumed_bytes, 0);
  files.crash(0);
  EXPECT_EQ(contents(files), whole());  // It is durable.
}

TEST_F(fetch_model_test, copies_a_repository_of_one_network) {
  hub_.add("models/org/clip", "main",
           {{"config.json", {"{}"}}, {"merges.txt", {"a b\n"}}, {"model.safetensors", {large_, true}}, {"pytorch_model.bin", {"pickle"}}});
  MemoryFileSystem files;
  EXPECT_EQ(fetch(files, "hf://org/clip").value().num_files, 3);
  EXPECT_EQ(contents(files),
            (std::map<std::string, std::string>{{"sd/config.json", "{}"}, {"sd/merges.txt", "a b\n"}, {"sd/model.safetensors", large_}}));
}

TEST_F(fetch_model_test, goes_on_wherever_it_was_cut) {
  for (const size_t cut : {0u, 1u, 999u, 1000u, 1001u, 2500u, 4999u, 5000u}) {
    MemoryFileSystem files;
    ASSERT_TRUE(write_file_atomic(files, kPart, large_.substr(0, cut)).is_ok());
    const size_t num_before = hub_.bytes_requests().size();
    const FetchedModel fetched = fetch(files).value();
    EXPECT_EQ(contents(files), whole()) << cut;
    EXPECT_EQ(fetched.num_resumed_bytes, static_cast<int64_t>(cut));
    const auto requests = hub_.bytes_requests();
    EXPECT_EQ(requests.size() - num_before, (5000 - cut + 999) / 1000) << cut;
    if (cut < 5000) {
      EXPECT_THAT(request_header(requests[num_before], "Range"), testing::StartsWith(fmt::format("bytes={}-", cut)));
    }
  }
}

TEST_F(fetch_model_test, a_server_that_breaks_off_leaves_what_the_next_call_goes_on_with) {
  for (const int num_good : {0, 1, 3}) {
    MemoryFileSystem files;
    std::atomic<int> num_served = 0;
    hub_.set_bytes_fault([&](const Request&) -> std::optional<Answer> {
      if (num_served++ < num_good) {
        return std::nullopt;
      }
      return Answer{"HTTP/1.1 206 X\r\nContent-Length: 1000\r\n\r\n" + std::string(300, 'x'), Answer::Then::kClose};
    });
    EXPECT_EQ(fetch(files).status().code(), StatusCode::kUnavailable);
    EXPECT_FALSE(files.exists("/models/sd").value());
    EXPECT_EQ(read_file(files, kPart).value(), large_.substr(0, static_cast<size_t>(num_good) * 1000));
    const auto small_bytes = static_cast<int64_t>(model().at("model_index.json").bytes.size() + 2 + 4);  // Of the four files before it.
    EXPECT_EQ(told_.commit, commit_);
    EXPECT_EQ(told_.num_files, 4);
    EXPECT_EQ(told_.num_bytes, small_bytes + num_good * 1000);
    EXPECT_EQ(told_.num_resumed_bytes, 0);
    EXPECT_EQ(told_.num_wanted_files, 5);
    EXPECT_EQ(told_.num_wanted_bytes, small_bytes + 5000);
    hub_.set_bytes_fault(nullptr);
    EXPECT_EQ(fetch(files).value().num_resumed_bytes, small_bytes + num_good * 1000);
    EXPECT_EQ(told_.num_resumed_bytes, small_bytes + num_good * 1000);
    EXPECT_EQ(told_.num_bytes, told_.num_wanted_bytes);
    EXPECT_EQ(contents(files), whole());
  }
}

TEST_F(fetch_model_test, a_death_at_any_change_loses_nothing) {
  for (int64_t step = 0;; ++step) {
    MemoryFileSystem memory;
    FaultInjectingFileSystem files(memory);
    files.fail_call(step, Fault::kDeath);
    const bool has_ended = fetch(files).is_ok();
    memory.crash(static_cast<uint64_t>(step));
    const bool is_visible = memory.exists("/models/sd").value();
    EXPECT_TRUE(!is_visible || contents(memory) == whole()) << step;
    if (has_ended) {
      EXPECT_GT(step, 10);
      EXPECT_TRUE(is_visible);
      break;
    }
    if (!is_visible) {
      const auto again = fetch(memory);
      ASSERT_TRUE(again.is_ok()) << step << again.status().to_string();
      EXPECT_EQ(contents(memory), whole()) << step;
    }
  }
}

TEST_F(fetch_model_test, other_bytes_than_the_hub_names_are_never_published) {
  for (const bool is_large : {true, false}) {
    MemoryFileSystem files;
    const auto lie = [](const Request& request) -> std::optional<Answer> {
      if (!request.head.starts_with("GET ") || request.head.find("Range:") == std::string::npos ||
          request.head.find("/model_index") != std::string::npos) {
        return std::nullopt;
      }
      const std::string range = request_header(request, "Range");
      const size_t first = std::stoul(range.substr(6));
      const size_t last = std::stoul(range.substr(range.find('-') + 1));
      const size_t whole = request.head.find("ticket") != std::string::npos ? 5000 : last + 1;
      return Answer{
          http_answer(206, std::string(last - first + 1, '!'), fmt::format("Content-Range: bytes {}-{}/{}\r\n", first, last, whole))};
    };
    hub_.set_bytes_fault(is_large ? FakeHub::Fault(lie) : nullptr);
    hub_.set_hub_fault(is_large ? nullptr : FakeHub::Fault(lie));
    const Status wrong = fetch(files).status();
    EXPECT_EQ(wrong.code(), StatusCode::kCorruptData);
    EXPECT_THAT(wrong.message(), AllOf(HasSubstr(is_large ? "unet/w.safetensors" : "tokenizer/merges.txt"),
                                       HasSubstr(is_large ? sha256_hex(large_) : FakeHub::git_sha1("a b\n"))));
    EXPECT_EQ(told_.num_files, is_large ? 4 : 1);
    EXPECT_LT(told_.num_bytes, 100);  // Of the files before it; its own are gone.
    EXPECT_FALSE(files.exists("/models/sd").value());
  }
}

TEST_F(fetch_model_test, what_was_stored_of_other_bytes_is_read_anew) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, kPart, bytes_of(2500, 9)).is_ok());
  ASSERT_TRUE(write_file_atomic(files, "/models/_tmp.sd.fetch/unet/config.json", "{} too long").is_ok());
  ASSERT_TRUE(write_file_atomic(files, "/models/_tmp.sd.fetch/unet/old.safetensors", "x").is_ok());
  ASSERT_TRUE(write_file_atomic(files, "/models/_tmp.sd.fetch/vae/old.json", "x").is_ok());
  ASSERT_TRUE(fetch(files).is_ok());
  EXPECT_EQ(contents(files), whole());
  EXPECT_FALSE(files.exists("/models/sd/vae").value());
}

/// Another process publishes just before this one gets the lock.
class LockedLate final : public ForwardingFiles {
 public:
  explicit LockedLate(MemoryFileSystem& files) : ForwardingFiles(files), files_(files) {}
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    EXPECT_TRUE(write_file_atomic(files_, "/models/sd/model_index.json", "another's").is_ok());
    return files_.try_lock(path);
  }

 private:
  MemoryFileSystem& files_;
};

TEST_F(fetch_model_test, fetches_nothing_when_another_was_faster) {
  MemoryFileSystem memory;
  LockedLate files(memory);
  const size_t num_before = hub_.bytes_requests().size();
  EXPECT_EQ(fetch(files).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(hub_.bytes_requests().size(), num_before);
  EXPECT_EQ(read_file(memory, "/models/sd/model_index.json").value(), "another's");
}

TEST_F(fetch_model_test, takes_the_revision_that_is_named) {
  FakeHub::Files other = model();
  other["unet/w.safetensors"].bytes = bytes_of(3000, 4);
  hub_.add("models/org/sd", "v2", other);
  MemoryFileSystem files;
  ASSERT_TRUE(fetch(files, "hf://org/sd@v2").is_ok());
  EXPECT_EQ(read_file(files, "/models/sd/unet/w.safetensors").value(), bytes_of(3000, 4));
  MemoryFileSystem others;
  EXPECT_EQ(fetch(others, "hf://org/sd@v3").status().code(), StatusCode::kNotFound);
}

TEST_F(fetch_model_test, pickle_alone_is_refused_before_anything_is_read) {
  FakeHub::Files pickle = model();
  pickle.erase("unet/w.safetensors");
  hub_.add("models/org/sd", "main", pickle);
  MemoryFileSystem files;
  EXPECT_THAT(fetch(files).status().message(), HasSubstr("unet/w.bin"));
  EXPECT_FALSE(files.exists("/models").value());
}

TEST_F(fetch_model_test, refuses_a_name_that_is_taken_another_fetch_and_no_model) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "/models/sd/x", "").is_ok());
  EXPECT_EQ(fetch(files).status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(hub_.hub_requests().empty());
  ASSERT_TRUE(files.remove_tree("/models/sd").is_ok());
  ASSERT_TRUE(files.create_folders("/models/_tmp.sd.fetch").is_ok());
  auto lock = files.try_lock("/models/_tmp.sd.fetch").value();
  EXPECT_THAT(fetch(files).status().message(), HasSubstr("another process"));
  lock.reset();
  for (const char* uri : {"hf://datasets/org/sd", "hf://org/sd/unet"}) {
    EXPECT_EQ(fetch(files, uri).status().code(), StatusCode::kInvalidArgument) << uri;
  }
}

TEST_F(fetch_model_test, a_gated_model_says_what_to_do_and_its_token_goes_nowhere_else) {
  hub_.set_token("s3cret", /*is_gated=*/true);
  MemoryFileSystem files;
  EXPECT_THAT(fetch(files).status().message(), HasSubstr("set HF_TOKEN"));
  token_ = "s3cret";
  ASSERT_TRUE(fetch(files).is_ok());
  ASSERT_FALSE(hub_.bytes_requests().empty());
  for (const Request& request : hub_.bytes_requests()) {
    EXPECT_THAT(request.head, Not(HasSubstr("s3cret")));
  }
}

TEST_F(fetch_model_test, a_stop_ends_it_between_two_pieces) {
  MemoryFileSystem files;
  std::stop_source stop;
  std::atomic<int> num_served = 0;
  hub_.set_bytes_fault([&](const Request&) -> std::optional<Answer> {
    if (++num_served == 2) {
      stop.request_stop();
    }
    return std::nullopt;
  });
  EXPECT_EQ(fetch(files, "hf://org/sd", stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(num_served, 2);
  EXPECT_FALSE(files.exists("/models/sd").value());
  EXPECT_GE(fetch(files).value().num_resumed_bytes, 2000);
}

}  // namespace
}  // namespace darkroom
