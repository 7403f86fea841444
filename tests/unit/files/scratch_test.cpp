#include "darkroom/files/scratch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <thread>

#include "support/refused_calls.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

constexpr int64_t kMegabyte = 1 << 20;

Result<ScratchFiles::Place> keep(ScratchFiles& scratch, std::string_view text) { return scratch.append(std::as_bytes(std::span(text))); }

std::string load(const ScratchFiles& scratch, const ScratchFiles::Place& place) {
  std::string text(static_cast<size_t>(place.num_bytes), '?');
  EXPECT_TRUE(scratch.read(place, std::as_writable_bytes(std::span(text))).is_ok());
  return text;
}

TEST(FreeBytes, are_some_of_the_disk_of_a_folder) {
  const TemporaryFolder folder;
  const Result<int64_t> num_free = free_bytes_at(folder.path());
  ASSERT_TRUE(num_free.is_ok()) << num_free.status().message();
  EXPECT_GT(*num_free, 0);
  EXPECT_LE(static_cast<uintmax_t>(*num_free), std::filesystem::space(folder.path()).capacity);
}

TEST(FreeBytes, of_a_folder_that_is_not_there_are_an_error_that_names_it) {
  const TemporaryFolder folder;
  const Status failure = free_bytes_at(folder.path() + "/none").status();
  EXPECT_EQ(failure.code(), StatusCode::kNotFound);
  EXPECT_THAT(failure.message(), HasSubstr(folder.path() + "/none"));
}

TEST(Scratch, gives_back_what_it_took_and_leaves_no_file) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), kMegabyte).value();
  const auto first = keep(*scratch, "first").value();
  const auto nothing = keep(*scratch, "").value();
  const auto second = keep(*scratch, "second").value();
  EXPECT_EQ(load(*scratch, second), "second");
  EXPECT_EQ(load(*scratch, nothing), "");
  EXPECT_EQ(load(*scratch, first), "first");
  EXPECT_EQ(scratch->used_bytes(), 11);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Scratch, gives_a_segment_back_when_all_its_places_are) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), kMegabyte, 10).value();
  const auto one = keep(*scratch, "12345").value();
  const auto two = keep(*scratch, "67890").value();
  const auto three = keep(*scratch, "abc").value();
  EXPECT_EQ(one.segment, two.segment);
  EXPECT_NE(two.segment, three.segment);
  EXPECT_EQ(scratch->used_bytes(), 13);
  scratch->free(one);
  EXPECT_EQ(scratch->used_bytes(), 13);
  scratch->free(two);
  EXPECT_EQ(scratch->used_bytes(), 3);
  scratch->free(three);
  EXPECT_EQ(scratch->used_bytes(), 0);
  EXPECT_EQ(load(*scratch, keep(*scratch, "again").value()), "again");
  EXPECT_EQ(load(*scratch, keep(*scratch, "longer than a segment").value()), "longer than a segment");
}

TEST(Scratch, holds_no_more_than_its_bound_and_goes_on_when_something_goes) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), 10, 4).value();
  const auto one = keep(*scratch, "1234").value();
  const auto two = keep(*scratch, "567890").value();
  const Status full = keep(*scratch, "x").status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), testing::AllOf(HasSubstr(folder.path()), HasSubstr("10 10")));
  EXPECT_TRUE(keep(*scratch, "").is_ok());
  scratch->free(one);
  EXPECT_EQ(load(*scratch, keep(*scratch, "abcd").value()), "abcd");
  EXPECT_EQ(load(*scratch, two), "567890");
}

TEST(Scratch, refuses_places_that_it_does_not_have) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), kMegabyte).value();
  const auto one = keep(*scratch, "1234").value();
  const auto two = keep(*scratch, "5678").value();
  std::string text(3, '?');
  EXPECT_THROW((void)scratch->read(one, std::as_writable_bytes(std::span(text))), CheckFailure);
  EXPECT_THROW(scratch->free({}), CheckFailure);
  scratch->free(one);
  scratch->free(two);
  EXPECT_THROW(scratch->free(two), CheckFailure);
  EXPECT_THROW((void)ScratchFiles::open(folder.path(), 0), CheckFailure);
}

TEST(Scratch, says_at_once_where_no_file_can_be_made) {
  const TemporaryFolder folder;
  const Status missing = ScratchFiles::open(folder.path("none"), kMegabyte).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder.path("none")));
  EXPECT_EQ(ScratchFiles::open("/proc", kMegabyte).is_ok(), false);
}

/// What append says in a child process with these refusals, once with them and then for 1 byte of what was stored before them.
int code_of_append(const std::string& folder, int call, int error) {
  const auto scratch = ScratchFiles::open(folder, kMegabyte).value();
  const auto before = keep(*scratch, "before").value();
  return result_with_refused_calls({{.call = call, .error = error}}, [&] {
    const Result<ScratchFiles::Place> place = keep(*scratch, "rows");
    if (!place.is_ok()) {
      return scratch->used_bytes() >= 6 && load(*scratch, before) == "before" ? static_cast<int>(place.status().code()) : 99;
    }
    std::string text(4, '?');
    return static_cast<int>(scratch->read(*place, std::as_writable_bytes(std::span(text))).code());
  });
}

TEST(Scratch, tells_a_full_disk_from_a_broken_one) {
  const TemporaryFolder folder;
  EXPECT_EQ(code_of_append(folder.path(), SYS_pwrite64, ENOSPC), static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_EQ(code_of_append(folder.path(), SYS_pwrite64, EDQUOT), static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_EQ(code_of_append(folder.path(), SYS_pwrite64, EIO), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(code_of_append(folder.path(), SYS_pread64, EIO), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(code_of_append(folder.path(), SYS_getpid, EIO), static_cast<int>(StatusCode::kOk)) << "the test itself works";
}

TEST(Scratch, a_write_that_is_cut_short_is_no_place) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), kMegabyte).value();
  const int result = result_with_refused_calls({}, [&] {
    const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
    if (::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      return 99;
    }
    const auto kept = keep(*scratch, std::string(60, 'a')).value();
    const Status cut = keep(*scratch, std::string(60, 'b')).status();
    return load(*scratch, kept) == std::string(60, 'a') ? static_cast<int>(cut.code()) : 98;
  });
  EXPECT_EQ(result, static_cast<int>(StatusCode::kResourceExhausted));
}

TEST(Scratch, works_where_files_cannot_be_made_without_a_name) {
  const TemporaryFolder folder;
  for (const int error : {EOPNOTSUPP, EISDIR, EINVAL}) {
    const RefusedCall no_tmpfile{.call = SYS_openat, .error = error, .argument = 2, .any_bit = O_TMPFILE & ~O_DIRECTORY};
    const int result = result_with_refused_calls({no_tmpfile}, [&] {
      const auto scratch = ScratchFiles::open(folder.path(), kMegabyte);
      if (!scratch.is_ok()) {
        return 1;
      }
      const bool is_same = load(**scratch, keep(**scratch, "rows").value()) == "rows";
      return is_same && std::filesystem::is_empty(folder.path()) ? 0 : 2;
    });
    EXPECT_EQ(result, 0) << error;
  }
}

TEST(Scratch, serves_many_threads) {
  const TemporaryFolder folder;
  const auto scratch = ScratchFiles::open(folder.path(), 64 * kMegabyte, 10'000).value();
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(thread);
        std::vector<std::pair<std::string, ScratchFiles::Place>> kept;
        for (int step = 0; step < 400; ++step) {
          if (kept.size() < 20 && random() % 3 != 0) {
            const std::string text(random() % 2000, static_cast<char>('a' + random() % 26));
            kept.emplace_back(text, keep(*scratch, text).value());
          } else if (!kept.empty()) {
            std::swap(kept[random() % kept.size()], kept.back());
            EXPECT_EQ(load(*scratch, kept.back().second), kept.back().first);
            scratch->free(kept.back().second);
            kept.pop_back();
          }
        }
        for (const auto& [text, place] : kept) {
          EXPECT_EQ(load(*scratch, place), text);
          scratch->free(place);
        }
      });
    }
  }
  EXPECT_EQ(scratch->used_bytes(), 0);
}

}  // namespace
}  // namespace darkroom
